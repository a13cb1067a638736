"""A model that a replica divides among threads of the test, instead of processes."""

import copy
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from builders import partitions, ranks
from disttrain.groups import steps
from disttrain.groups.steps import Leader
from disttrain.job.roles import Replicas
from disttrain.parallel.communicator import Communicator
from disttrain.replica.division import Division
from disttrain.replica.partitions import DividedModel, FollowingPartition

CPU = torch.device("cpu")
PATIENCE_SECONDS = 30.0


class Group(ranks.ThreadGroup):
    """A thread's side of a group, which also carries what partitions send."""

    def __init__(self, other: ranks.ThreadGroup, peers: Communicator) -> None:
        super().__init__(other._meeting, other._number)
        self._peers = peers

    @property
    def peers(self) -> Communicator:
        return self._peers


@contextmanager
def in_parts(
    model: nn.Module,
    count: int,
    sample: tuple[int, ...],
    device: torch.device = CPU,
    **said: Any,
) -> Iterator[DividedModel]:
    """The model, divided among threads; its followers end with the block.

    `said`: more of a manifest's `replicas`.
    """
    replicas = Replicas(partitions=count, grid=f"{count}x1", **said)
    meeting = partitions.Meeting(count)
    groups = [
        Group(group, partitions.Thread(rank, meeting))
        for rank, group in enumerate(ranks.thread_groups(count))
    ]
    leader = Leader(groups[0])

    def follow(group: Group, own: nn.Module) -> int:
        following = FollowingPartition(Division(own, replicas, sample, device), group)
        return steps.follow(group, following.step)

    with ThreadPoolExecutor(count) as pool:
        # Their values are of no account: they get the first one's.
        models = [copy.deepcopy(model).requires_grad_() for _ in groups[1:]]
        for other, whole in zip(models, [model] * count, strict=False):
            for own, given in zip(other.parameters(), whole.parameters(), strict=True):
                own.data.zero_()
                own.requires_grad_(given.requires_grad)
        running: list[Future[int]] = [
            pool.submit(follow, group, own) for group, own in zip(groups[1:], models, strict=True)
        ]
        yield DividedModel(Division(model, replicas, sample, device), leader)
        leader.end(3)
        assert [each.result(PATIENCE_SECONDS) for each in running] == [3] * (count - 1)
