"""What the other processes of a replica learn of its leases: as many as the first one computes."""

import queue
from collections.abc import Callable, Sequence

from disttrain.coordinator.protocol.fields import Lease

Step = Callable[[Sequence[int]], None]
"""What a process does in a step, by the words of its order."""


class AnnouncedLeases:
    """The leases of which the first rank has begun. See `work.Source`."""

    def __init__(self) -> None:
        self._leases: queue.SimpleQueue[Lease] = queue.SimpleQueue()
        self.ended = False
        self.dry = False

    def announce(self, lease: Lease) -> None:
        self._leases.put(lease)

    def next_now(self) -> Lease | None:
        return None if self._leases.empty() else self._leases.get()

    def next_within(self, seconds: float) -> Lease | None:
        try:
            return self._leases.get(timeout=seconds)
        except queue.Empty:
            return None
