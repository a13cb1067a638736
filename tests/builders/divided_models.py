"""A model that a replica divides among threads of the test, instead of processes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from builders import partitions, ranks
from disttrain.groups import steps
from disttrain.groups.steps import Leader
from disttrain.job.roles import Replicas
from disttrain.job.spec import FrozenParameters
from disttrain.job.strategy_kind import Precision
from disttrain.parallel.communicator import Communicator
from disttrain.parallel.partitioned import Partitioned
from disttrain.replica.division import Division
from disttrain.replica.model_tensors import OwnPart
from disttrain.replica.partitions import DividedModel, FollowingPartition

CPU = torch.device("cpu")
PATIENCE_SECONDS = 30.0


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    """Of a model in one process."""
    return {name: each.grad for name, each in model.named_parameters()}


def assert_close(found: Mapping[str, Tensor | None], wanted: Mapping[str, Tensor | None]) -> None:
    """In float64."""
    torch.testing.assert_close(dict(found), dict(wanted), rtol=1e-9, atol=1e-11)


class Group(ranks.ThreadGroup):
    """A thread's side of a group, which also carries what partitions send."""

    def __init__(self, other: ranks.ThreadGroup, peers: Communicator) -> None:
        super().__init__(other._meeting, other._number)
        self._peers = peers

    @property
    def peers(self) -> Communicator:
        return self._peers


@dataclass
class InParts:
    """A divided model, and the part of each partition."""

    division: Division
    divided: DividedModel
    parts: list[Partitioned]
    has_followers: bool = True

    @property
    def model(self) -> nn.Module:
        """What a task is given; it has no values."""
        return self.divided.model

    def gradients(self) -> dict[str, Tensor | None]:
        """Of the whole model's parameters."""
        return self._whole(lambda part: part.named_parameters(), lambda each: each.grad)

    def values(self) -> dict[str, Tensor]:
        """Of the whole model's parameters and buffers."""
        found = self._whole(lambda part: part.state_dict().items(), lambda each: each.detach())
        return {name: each for name, each in found.items() if each is not None}

    def step(self, rate: float) -> None:
        """What a plain SGD does, and forget the gradients."""
        self._settle()
        for rank, part in enumerate(self.parts):
            own = self._own(rank)
            named = part.named_parameters()
            trained = [each for name, each in named if own.has(each, name)]
            if trained:
                torch.optim.SGD(trained, lr=rate).step()
            part.zero_grad()

    def _settle(self) -> None:
        """Others come to an act when they have done those before it."""
        if self.has_followers:
            self.divided.tensor(self.model, next(iter(self.model.state_dict())))

    def _own(self, rank: int) -> OwnPart:
        return self.division.own_part(self.parts[rank], rank)

    def _whole(
        self,
        named: Callable[[Partitioned], Iterable[tuple[str, Tensor]]],
        taken: Callable[[Tensor], Tensor | None],
    ) -> dict[str, Tensor | None]:
        self._settle()
        found: dict[str, Tensor | None] = {}
        for rank, part in enumerate(self.parts):
            own = self._own(rank)
            tensors = dict([*part.named_parameters(), *part.named_buffers()])
            for name, each in named(part):
                if not own.has(tensors[name], name):
                    continue
                piece = taken(each)
                if piece is None:
                    found.setdefault(name, None)
                    continue
                whole = found.get(name)
                if whole is None:
                    whole = found[name] = torch.zeros(own.shapes[name], dtype=piece.dtype)
                whole[part.pieces.get(name) or ...] = piece
        return found


@contextmanager
def in_parts(
    model: nn.Module,
    count: int,
    sample: tuple[int, ...],
    device: torch.device = CPU,
    **said: Any,
) -> Iterator[InParts]:
    """The model, divided among threads; its followers end with the block.

    `said`: more of a manifest's `replicas`.
    """
    replicas = Replicas(grid=f"{count}x1", **said)
    meeting = partitions.Meeting(count)
    groups = [
        Group(group, partitions.Thread(rank, meeting))
        for rank, group in enumerate(ranks.thread_groups(count))
    ]
    leader = Leader(groups[0])
    division = Division(model, replicas, sample, device)
    double = next(model.parameters(), torch.zeros(0)).dtype is torch.float64
    precision = Precision.FLOAT64 if double else Precision.FLOAT32
    layout = division.layout(precision, {}, FrozenParameters.SHARED)
    followers = [FollowingPartition(division, group, layout) for group in groups[1:]]
    with ThreadPoolExecutor(count) as pool:
        running: list[Future[int]] = [
            pool.submit(steps.follow, group, following.step)
            for group, following in zip(groups[1:], followers, strict=True)
        ]
        divided = DividedModel(division, leader, layout)
        parts = [divided.part.module, *(each.part.module for each in followers)]
        made = InParts(division, divided, parts)
        yield made
        leader.end(3)
        made.has_followers = False
        assert [each.result(PATIENCE_SECONDS) for each in running] == [3] * (count - 1)
