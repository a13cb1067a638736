"""The leases that a replica holds, and those that it has lost to others."""

import time
from collections import deque
from collections.abc import Callable, Set

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import Lease, MemberId, Position, Progress
from disttrain.replica.work import WorkItem

_HELD = 2
"""Leases held at a time: one being computed, one prefetched."""


class HeldLeases:
    """Leases in the order of their numbers. See `work.Held`."""

    def __init__(self, member: MemberId, progress: Callable[[], Progress]) -> None:
        self._member = member
        self._progress = progress
        self._held: deque[Lease] = deque()
        self._last = 0
        self._given_out = 0

    @property
    def has_room(self) -> bool:
        return len(self._held) < _HELD - 1

    def wait_for_room(self, seconds: float) -> None:
        time.sleep(seconds)

    def request(self) -> messages.RequestWork:
        return messages.RequestWork(
            member=self._member,
            held=len(self._held) + self._given_out,
            last_lease=self._last,
            progress=self._progress(),
        )

    def hold(self, work: messages.Work) -> None:
        for lease in work.leases:
            if lease.id > self._last:
                self._held.append(lease)
                self._last = lease.id

    def take(self) -> Lease | None:
        lease = self._held.popleft() if self._held else None
        self._given_out = 0 if lease is None else 1
        return lease


class LostLeases:
    """Leases that were given to others while this replica held them: what is not begun is skipped.

    Belongs to the compute thread; `abandoned` may be read by any.
    """

    def __init__(self, lost: Callable[[], Set[int]]) -> None:
        """`lost`: the leases that the coordinator gave to others.

        Each until it has heard where the lease ended here.
        """
        self._lost = lost
        self.abandoned: tuple[Position, ...] = ()
        """Where each lost lease ended here for good; those that the coordinator may not know."""

    def given_up(self, acknowledged: Position) -> tuple[Position, ...]:
        """Where lost leases ended, of those whose every push is answered.

        A push under way may never arrive: the lease's end counts as done when it is told.
        """
        return tuple(p for p in self.abandoned if p.offset == 0 or p <= acknowledged)

    def skips(self, item: WorkItem, reached: Position) -> bool:
        """Whether the batch must not be computed; `reached` is the position of the last one."""
        lost = self._lost()
        # Leases come in the order of their numbers: of an earlier one no batch follows.
        kept = [p for p in self.abandoned if p.lease == item.lease or p.lease in lost]
        if item.lease in lost and all(ended.lease != item.lease for ended in kept):
            offset = reached.offset if reached.lease == item.lease else 0
            kept.append(Position(lease=item.lease, offset=offset))
        self.abandoned = tuple(kept)
        return any(ended.lease == item.lease for ended in kept)
