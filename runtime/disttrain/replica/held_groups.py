"""The groups that a replica has: from the coordinator's word until the coordinator has the result.

A group that was dropped may be given out again under the same attempt. So that nothing read for
the first time is taken for a part of the second, each taking has a number of its own.
"""

import threading
import time
from collections.abc import Callable

from disttrain.coordinator.protocol.messages import GroupLease

HELD = 2
"""Groups at a time that are not computed: one that is being, and the next one, prefetched."""
_PAUSE_SECONDS = 0.05
"""After a group of an evaluation that is over was given: a shard was lost, and the coordinator does
not know it yet."""


class HeldGroups:
    """May be used by any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._room = threading.Condition()
        """Guards everything, and is notified when there may be room for another group."""
        self._groups: dict[int, GroupLease] = {}
        self._computed: set[int] = set()
        self._taken = 0
        self._over = 0
        """The newest evaluation that is over, as far as is known here."""
        self._pause_until = 0.0

    def take(self, group: GroupLease) -> int | None:
        """The number of this taking; None for an attempt that is held already."""
        with self._room:
            if any(held.attempt == group.attempt for held in self._groups.values()):
                return None
            if group.evaluation <= self._over:
                self._pause_until = self.clock() + _PAUSE_SECONDS
            self._taken += 1
            self._groups[self._taken] = group
            return self._taken

    def get(self, number: int) -> GroupLease | None:
        """What was taken under this number; None if it was dropped."""
        return self._groups.get(number)

    def computed(self, number: int) -> None:
        """Its gradient is on its way: there is room for another group."""
        with self._room:
            self._computed.add(number)
            self._room.notify_all()

    def done(self, number: int) -> None:
        """The coordinator has the result."""
        with self._room:
            self._forget(number)

    def drop(self, evaluation: int) -> None:
        """This evaluation is over: forget its groups, and those of earlier ones."""
        with self._room:
            for number in [n for n, held in self._groups.items() if held.evaluation <= evaluation]:
                self._forget(number)
            self._over = max(self._over, evaluation)
            self._room.notify_all()

    @property
    def to_compute(self) -> int:
        """How many are not computed."""
        with self._room:
            return self._to_compute()

    @property
    def has_room(self) -> bool:
        """Whether another group is to be asked for now."""
        with self._room:
            return self._has_room()

    def wait_for_room(self, seconds: float) -> None:
        """Return when another group is to be asked for, or after so long at most."""
        with self._room:
            pause = self._pause_until - self.clock()
            self._room.wait_for(self._has_room, min(pause, seconds) if pause > 0 else seconds)

    @property
    def attempts(self) -> tuple[int, ...]:
        """The attempts that are held."""
        with self._room:
            return tuple(held.attempt for held in self._groups.values())

    def _to_compute(self) -> int:
        return len(self._groups) - len(self._computed)

    def _has_room(self) -> bool:
        return self._to_compute() < HELD and self.clock() >= self._pause_until

    def _forget(self, number: int) -> None:
        self._groups.pop(number, None)
        self._computed.discard(number)
