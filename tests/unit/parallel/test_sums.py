"""Sums over all partitions: how many there are, and what they keep."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from builders.divided import divided, far
from builders.partitions import in_partitions
from disttrain.parallel import Grid, partition
from disttrain.parallel.communicator import Alone, Communicator, Exchange, tied


def test_gradients_of_all_tied_parameters_cross_in_one_sum() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 2, 3), nn.Tanh())

    found = divided(model, (1, 2), torch.randn(2, 3, 8, 8), torch.ones(2, 2, 6, 6))

    assert [each.sums for each in found.traffic] == [1, 1]


def test_a_batch_normalisation_has_one_sum_each_way() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, affine=False))

    found = divided(model, (1, 2), torch.randn(2, 3, 8, 8), torch.randn(2, 4, 8, 8))

    assert [each.sums for each in found.traffic] == [3, 3]


def test_a_variance_keeps_its_digits_beside_a_large_mean() -> None:
    model = nn.Sequential(nn.MaxPool2d(1), nn.BatchNorm2d(3))
    x = torch.randn(4, 3, 8, 8) + 1000.0

    found = divided(model, (2, 2), x, torch.randn(4, 3, 8, 8))

    assert far(found.output, model(x)) < 1e-3


def test_a_batch_of_no_samples_leaves_running_values_as_torch_does() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    model(torch.randn(2, 3, 8, 8))

    def work(peers: Communicator) -> dict[str, Tensor]:
        made = partition(model, Grid(1, 2), peers, (3, 8, 8))
        made(torch.zeros(0, 3, 8, 8)).sum().backward()
        gradients = [each.grad for each in made.parameters() if each.grad is not None]
        assert gradients
        assert not any(each.any() for each in gradients)
        return {name.rpartition(".")[2]: buffer for name, buffer in made.named_buffers()}

    found = in_partitions(2, work)

    model(torch.zeros(0, 3, 8, 8))
    for buffers in found:
        for name, wanted in model[1].named_buffers():
            assert torch.equal(buffers[name], wanted), name


def test_parameters_of_several_types_are_summed_each_in_its_own() -> None:
    def work(peers: Communicator) -> tuple[Tensor, Tensor]:
        single, double = torch.ones(2, requires_grad=True), torch.ones(3).double().requires_grad_()
        a, b = tied([single, double], peers)
        ((peers.rank + 1) * (2 * a.sum() + b.sum())).backward()  # type: ignore[no-untyped-call]
        assert single.grad is not None
        assert double.grad is not None
        return single.grad, double.grad

    for single, double in in_partitions(2, work):
        assert single.tolist() == [6.0, 6.0]
        assert double.tolist() == [3.0, 3.0, 3.0]


def test_frozen_filters_have_no_gradient_and_hold_nobody_up() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1))
    for parameter in model.parameters():
        parameter.requires_grad = False
    model[1].bias.requires_grad_()

    def work(peers: Communicator) -> list[bool]:
        made = partition(model, Grid(1, 2), peers, (3, 8, 8))
        made(torch.randn(2, 3, 8, 8)).sum().backward()
        return [each.grad is not None for each in made.parameters()]

    assert in_partitions(2, work) == [[False, False, False, True]] * 2


def test_what_does_not_cross_is_no_message() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2), nn.Tanh())

    found = divided(model, (2, 2), torch.randn(2, 3, 8, 8), torch.randn(2, 4, 4, 4))

    # Only the whole output in the end.
    assert [each.messages for each in found.traffic] == [3] * 4


def test_waiting_in_sums_and_for_messages_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    class Slow(Alone):
        """Each wait takes a second."""

        def _reduce(self, tensor: Tensor, *, is_sum: bool) -> Tensor:
            now[0] += 1.0
            return super()._reduce(tensor, is_sum=is_sum)

        def _exchange(
            self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]
        ) -> Exchange:
            del outgoing, incoming
            now[0] += 0.25
            return Taking()

    class Taking(Exchange):
        def wait(self) -> None:
            now[0] += 1.0

    peers = Slow()
    peers.sum(torch.ones(1))
    peers.maximum(torch.ones(1))
    assert peers.traffic.waited_seconds == 2.0
    under_way = peers.exchange({1: torch.ones(1)}, {})
    now[0] += 8.0
    under_way.wait()
    assert peers.traffic.waited_seconds == 3.25
