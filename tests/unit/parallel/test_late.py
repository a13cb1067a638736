"""What is computed while messages are under way."""

import copy
from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from builders.divided import far, undivided, whole_of
from builders.partitions import Meeting, Thread, in_partitions
from disttrain.parallel import (
    Grid,
    LocallyConnected2d,
    Partitioned,
    UnitFilters2d,
    late,
    partition,
)
from disttrain.parallel.communicator import Communicator, Exchange, Traffic


def a_model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, groups=1),
        nn.Tanh(),
        nn.Conv2d(4, 4, 3, padding=2, stride=2, dilation=2, groups=2, bias=False),
        nn.Flatten(),
        nn.Linear(64, 9),
        nn.Tanh(),
        nn.Linear(9, 5, bias=False),
    ).double()


@pytest.mark.parametrize("overlaps", [True, False])
@pytest.mark.parametrize("grid", [(1, 2), (2, 2), (1, 3)])
def test_gradients_are_those_of_one_process(grid: tuple[int, int], *, overlaps: bool) -> None:
    model, x = a_model(), torch.randn(4, 3, 8, 8, dtype=torch.float64)
    weight = torch.randn(4, 5, dtype=torch.float64)
    wanted = undivided(model, x, weight)

    def one(peers: Communicator) -> Partitioned:
        peers.overlaps = overlaps
        made = partition(copy.deepcopy(model), Grid(*grid), peers, x.shape[1:])
        for _ in range(2):
            # What is left of one pass does not change the next one.
            made.zero_grad()
            (made(x) * weight).sum().backward()
        return made

    made = in_partitions(grid[0] * grid[1], one)

    def gradient(parameter: Tensor) -> Tensor:
        assert parameter.grad is not None
        return parameter.grad

    found: Mapping[str, Tensor] = whole_of(model, made, gradient)
    assert max(far(each, wanted.of_parameters[name]) for name, each in found.items()) < 1e-10


class Watched(Thread):
    """Notes what backward computes before it waits for an exchange."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        super().__init__(rank, meeting)
        self.seen: list[str] = []

    def exchange(self, *messages: Mapping[int, Tensor]) -> Exchange:
        under_way = super().exchange(*messages)
        self.seen.append("begin")
        return Noted(under_way, self.seen)


class Noted(Exchange):
    def __init__(self, under_way: Exchange, seen: list[str]) -> None:
        self._under_way, self._seen = under_way, seen

    def wait(self) -> None:
        self._seen.append("wait")
        self._under_way.wait()


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 2, 3, padding=1),
        LocallyConnected2d(4, 2, 3, input_size=(8, 8), padding=1),
        UnitFilters2d(4, 2, 3, input_size=(8, 8)),
    ],
)
@pytest.mark.parametrize("overlaps", [True, False])
def test_weights_have_their_gradients_before_messages_are_waited_for(
    layer: nn.Module, *, overlaps: bool
) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Tanh(), layer)
    meeting = Meeting(2)

    def one(peers: Communicator) -> list[str]:
        watched = Watched(peers.rank, meeting)
        watched.overlaps = overlaps
        made = partition(copy.deepcopy(model), Grid(1, 2), watched, (3, 8, 8))
        y = made.divided(torch.randn(2, 3, 8, 8)).tensor.sum()
        for node in _nodes(y.grad_fn):
            if "OfParameters" in node.name():
                node.register_hook(lambda *_: watched.seen.append("weights"))
        watched.seen.clear()
        y.backward()  # type: ignore[no-untyped-call]
        return watched.seen

    wanted = ["begin", "weights", "wait"] if overlaps else ["begin", "wait"]
    assert in_partitions(2, one) == [wanted, wanted]


def _nodes(node: torch.autograd.graph.Node | None) -> list[torch.autograd.graph.Node]:
    if node is None:
        return []
    return [node, *(found for each, _ in node.next_functions for found in _nodes(each))]


def test_time_in_which_nothing_is_computed_is_counted() -> None:
    def one(peers: Communicator) -> Traffic:
        into = {1 - peers.rank: torch.empty(3)}
        peers.exchange({1 - peers.rank: torch.ones(3)}, into).wait()
        return peers.traffic

    assert all(each.exposed_seconds > 0.0 for each in in_partitions(2, one))


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the products of this thread."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func.overloadpacket in {*flop_registry, torch.ops.aten.addmm_}:
            self._seen.append("product")
        return func(*args, **(kwargs or {}))


BEFORE_AND_AFTER = ["begin", "product", "wait", "product"]
AFTER = ["begin", "wait", "product"]


@pytest.mark.parametrize(
    ("layer", "width", "overlaps", "wanted"),
    [
        (nn.Conv2d(3, 4, 3, padding=1), 40, True, BEFORE_AND_AFTER),
        (nn.Conv2d(3, 4, 3, padding=1), 40, False, AFTER),
        # Of 19 columns one is at the border: too many to be computed twice.
        (nn.Conv2d(3, 4, 3, padding=1), 38, True, AFTER),
        (nn.Conv2d(3, 4, 3, padding=1).requires_grad_(requires_grad=False), 40, True, AFTER),
        (nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 12, 6)), 12, True, BEFORE_AND_AFTER),
        (nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 12, 6)), 12, False, AFTER),
    ],
)
def test_what_is_here_is_computed_before_the_rest_is_waited_for(
    layer: nn.Module, width: int, *, overlaps: bool, wanted: list[str]
) -> None:
    meeting = Meeting(2)
    model = nn.Sequential(nn.MaxPool2d(1), layer)

    def one(peers: Communicator) -> list[str]:
        watched = Watched(peers.rank, meeting)
        watched.overlaps = overlaps
        made = partition(copy.deepcopy(model), Grid(1, 2), watched, (3, 4, width))
        with Products(watched.seen):
            made.divided(torch.randn(2, 3, 4, width))
        return watched.seen

    assert in_partitions(2, one) == [wanted, wanted]


@settings(max_examples=30)
@given(
    grid=st.sampled_from([(1, 2), (2, 1), (2, 2), (1, 3), (2, 3)]),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 2),
)
def test_outputs_at_a_border_are_those_of_one_process(
    grid: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: int,
    padding: int,
) -> None:
    model = nn.Sequential(
        nn.MaxPool2d(1), nn.Conv2d(2, 3, kernel, stride, padding, dilation), nn.Flatten()
    )
    x = torch.randn(2, 2, 23, 29, dtype=torch.float64)
    model.append(nn.Linear(model.double()(x).shape[1], 7).double())
    wanted = model(x).detach()

    with mock.patch.object(late, "MOST_AGAIN", 1.0):
        found = in_partitions(
            grid[0] * grid[1],
            lambda peers: partition(copy.deepcopy(model), Grid(*grid), peers, x.shape[1:])(x),
        )
    assert max(far(each.detach(), wanted) for each in found) < 1e-12
