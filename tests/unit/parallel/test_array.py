"""An array of which each partition has a window."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from builders.divided import elements, messages
from builders.partitions import in_partitions
from disttrain.parallel.array import DistributedArray, Everywhere, assembled
from disttrain.parallel.communicator import Communicator, Traffic
from disttrain.parallel.windows import NOTHING, Box, Grid, Plan, Span, Windows, on_one, whole

SAMPLES, CHANNELS = 2, 3


def cut(x: Tensor, box: Box) -> Tensor:
    return x[:, :, box.rows.first : box.rows.end, box.columns.first : box.columns.end]


def each(
    x: Tensor, windows: Windows, work: Callable[[DistributedArray], Tensor]
) -> list[tuple[Tensor, Tensor, Traffic]]:
    """What every partition makes of its window, the gradient of that, and what it sent."""
    height, width = x.shape[2:]

    def one(peers: Communicator) -> tuple[Tensor, Tensor, Traffic]:
        own = cut(x, windows[peers.rank]).clone().requires_grad_()
        made = work(DistributedArray(own, windows, height, width, peers))
        sent = Traffic(peers.traffic.messages, peers.traffic.nbytes)
        made.square().sum().backward()  # type: ignore[no-untyped-call]
        assert own.grad is not None
        return made.detach(), own.grad, sent

    return in_partitions(len(windows), one)


def spans(length: int) -> st.SearchStrategy[Span]:
    ends = st.tuples(st.integers(0, length), st.integers(0, length))
    return ends.map(lambda pair: Span(min(pair), max(pair)))


@settings(max_examples=30)
@given(st.sampled_from([(1, 2), (2, 1), (2, 2), (1, 3), (2, 3)]), st.data())
def test_a_window_comes_from_its_owners_and_gradients_go_back_and_add_up(
    size: tuple[int, int], data: st.DataObject
) -> None:
    height, width = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7))
    grid = Grid(*size)
    windows = grid.windows(height, width)
    needed = tuple(Box(data.draw(spans(height)), data.draw(spans(width))) for _ in windows)
    x = torch.randn(SAMPLES, CHANNELS, height, width, dtype=torch.float64)

    found = each(x, windows, lambda array: array.fetch(needed))

    wanted = torch.zeros_like(x)
    for box in needed:
        cut(wanted, box).add_(2 * cut(x, box))
    for rank, (made, gradient, _) in enumerate(found):
        assert torch.equal(made, cut(x, needed[rank]))
        assert torch.allclose(gradient, cut(wanted, windows[rank]))
    plan = Plan(windows, needed)
    assert sum(sent.messages for _, _, sent in found) == messages(plan)
    assert sum(sent.nbytes for _, _, sent in found) == elements(plan) * CHANNELS * SAMPLES * 8


def test_what_several_partitions_write_is_added_up() -> None:
    windows = Grid(1, 2).windows(2, 4)
    written = (Box(Span(0, 2), Span(0, 3)), Box(Span(0, 2), Span(1, 4)))
    full = torch.arange(8.0).view(1, 1, 2, 4)

    def one(peers: Communicator) -> tuple[Tensor, Tensor]:
        own = cut(full, written[peers.rank]).clone().requires_grad_()
        array = assembled(own, written, windows, peers)
        (array.tensor * (peers.rank + 1)).sum().backward()  # type: ignore[no-untyped-call]
        assert own.grad is not None
        return array.tensor.detach(), own.grad

    (left, left_gradient), (right, right_gradient) = in_partitions(2, one)
    # The two columns in the middle were written twice.
    assert left[0, 0].tolist() == [[0.0, 2.0], [4.0, 10.0]]
    assert right[0, 0].tolist() == [[4.0, 3.0], [12.0, 7.0]]
    assert left_gradient[0, 0].tolist() == [[1.0, 1.0, 2.0]] * 2
    assert right_gradient[0, 0].tolist() == [[1.0, 2.0, 2.0]] * 2


def test_what_all_have_in_the_end_has_the_gradient_of_one_of_them() -> None:
    x = torch.randn(SAMPLES, CHANNELS, 3, 5)

    found = each(x, Grid(1, 2).windows(3, 5), lambda array: array.everywhere())

    for made, _, _ in found:
        assert torch.equal(made, x)
    assert torch.allclose(torch.cat([gradient for _, gradient, _ in found], dim=3), 2 * x)


def test_a_partition_that_owns_nothing_takes_part() -> None:
    x = torch.randn(SAMPLES, CHANNELS, 3, 5)

    found = each(x, on_one(1, 2, 3, 5), lambda array: array.fetch((whole(3, 5), NOTHING)))

    assert torch.equal(found[0][0], x)
    assert found[1][0].numel() == found[0][1].numel() == 0
    assert torch.allclose(found[1][1], 2 * x)
    assert [sent.messages for _, _, sent in found] == [0, 1]


def test_nothing_is_sent_of_an_input_that_all_have() -> None:
    x = torch.randn(SAMPLES, CHANNELS, 3, 4)
    needed = Grid(1, 2).windows(3, 4)

    def one(peers: Communicator) -> tuple[Tensor, int]:
        return Everywhere(x, peers).fetch(needed), peers.traffic.messages

    found = in_partitions(2, one)

    assert torch.equal(torch.cat([window for window, _ in found], dim=3), x)
    assert [messages for _, messages in found] == [0, 0]


def test_an_error_in_one_partition_ends_the_test_of_all() -> None:
    def one(peers: Communicator) -> Tensor:
        if peers.rank:
            raise ZeroDivisionError
        return peers.sum(torch.ones(1))

    with pytest.raises(ZeroDivisionError):
        in_partitions(2, one)
