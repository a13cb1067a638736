"""Gradients of parameters that are computed while messages are under way."""

import copy
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from builders.divided import far, undivided, whole_of
from builders.partitions import Meeting, Thread, in_partitions
from disttrain.parallel import Grid, Partitioned, partition
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


@pytest.mark.parametrize("overlaps", [True, False])
def test_weights_have_their_gradients_before_messages_are_waited_for(*, overlaps: bool) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Tanh(), nn.Conv2d(4, 2, 3, padding=1))
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
