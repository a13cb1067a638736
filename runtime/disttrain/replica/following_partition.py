"""A partition other than the first: it computes its part of the model on each batch."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from disttrain.coordinator.protocol.fields import Lease
from disttrain.coordinator.protocol.messages import Joined
from disttrain.groups.steps import Collective
from disttrain.launch.config import LaunchConfig
from disttrain.replica import task_calls
from disttrain.replica.announced import AnnouncedLeases, Step
from disttrain.replica.membership import Membership
from disttrain.replica.partitions import Order, Partition, PartOfLoss
from disttrain.replica.pipeline import Loaded
from disttrain.replica.prepared import Prepared
from disttrain.replica.work import Cutting, WorkItem

_LOOK_AGAIN_SECONDS = 0.1
_MOST_LEASES = 64
"""Whose batch sizes are known: those that are read, and some before."""


def steps(
    config: LaunchConfig, ready: Prepared, membership: Membership, joined: Joined, group: Collective
) -> Step:
    """What this process does in each step of its group, which is formed. Raises ModelError."""
    del config
    assert ready.division is not None  # noqa: S101  Its replica has several partitions.
    part = ready.division.part(group.peers)
    own, losses = Partition(part), PartOfLoss(part, ready.task.loss, ready.device)

    def portions(size: int) -> Callable[[int, int], NDArray[np.int64]]:
        return ready.train.portions(joined.seed, size)

    leases, cancellation = AnnouncedLeases(), membership.cancellation
    batches = Batches(leases, portions, cancellation.check)
    pipeline = ready.pipeline(joined.seed, leases, batches, cancellation)
    batches.read = pipeline.next

    def step(words: Sequence[int]) -> None:
        order = Order(*words)
        own.receive()
        loaded = batches.find(order)
        task_calls.seed_step(order.seed)
        own.give(losses.compute(loaded.batch, order.context))

    return step


class Batches:
    """The batches that the first process computes, of those that are read ahead.

    Also how its leases become batches, which depends on the stage of the job that it is in.
    """

    def __init__(
        self,
        leases: AnnouncedLeases,
        portions: Callable[[int], Callable[[int, int], NDArray[np.int64]]],
        check: Callable[[], None],
    ) -> None:
        """`portions`: by their size, which samples are in which. `check`: may end the wait."""
        self.read: Callable[[float], Loaded | None] = lambda _: None
        self._leases = leases
        self._portions = portions
        self._check = check
        self._cuttings: dict[tuple[int, int], Cutting] = {}
        self._now = (0, 0)

    def items(self, lease: Lease) -> Iterator[WorkItem]:
        """See `Cutting.items`."""
        return self._cuttings[lease.id, lease.portion].items(lease)

    def find(self, order: Order) -> Loaded:
        """Batches before it are dropped: the first process has lost their lease.

        Raises TaskError, and what ends this process.
        """
        place = (order.lease, order.portion)
        if place != self._now:
            self._now = place
            self._announce(order)
        while True:
            self._check()
            loaded = self.read(_LOOK_AGAIN_SECONDS)
            if loaded is None:
                continue
            item = loaded.item
            if (item.lease, item.portion, item.first) == (*place, order.first):
                return loaded

    def _announce(self, order: Order) -> None:
        size = order.portion_size
        cutting = Cutting(
            batch_size=order.batch_size, portion_indices=self._portions(size), portion_size=size
        )
        self._cuttings[self._now] = cutting
        for known in list(self._cuttings)[:-_MOST_LEASES]:
            del self._cuttings[known]
        self._leases.announce(order.rest())
