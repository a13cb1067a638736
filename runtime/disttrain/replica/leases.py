"""Asks the coordinator for leases, ahead of need: the one being computed and one more are held."""

import time
from collections import deque
from collections.abc import Callable

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import Lease, MemberId, Progress
from disttrain.replica.halt import Halt
from disttrain.replica.requested_work import RequestedWork, Requests

HELD = 2
"""Leases held at a time: one being computed, one prefetched."""


class LeaseSource(RequestedWork):
    """Leases in the order of their numbers."""

    def __init__(
        self,
        coordinator: Requests,
        member: MemberId,
        progress: Callable[[], Progress],
        halt: Halt,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(coordinator, halt, clock)
        self._member = member
        self._progress = progress
        self._held: deque[Lease] = deque()
        self._last = 0
        self._given_out = 0

    @property
    def _has_room(self) -> bool:
        return len(self._held) < HELD - 1

    def _take(self) -> Lease | None:
        lease = self._held.popleft() if self._held else None
        self._given_out = 0 if lease is None else 1
        return lease

    def _request(self) -> messages.RequestWork:
        return messages.RequestWork(
            member=self._member,
            held=len(self._held) + self._given_out,
            last_lease=self._last,
            progress=self._progress(),
        )

    def _hold(self, work: messages.Work) -> None:
        for lease in work.leases:
            if lease.id > self._last:
                self._held.append(lease)
                self._last = lease.id
