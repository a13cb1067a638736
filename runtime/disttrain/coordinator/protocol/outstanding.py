"""Which requests still wait for their answer, and when they are sent again. Pure.

The pauses grow, and differ from member to member: a coordinator that is slow or comes back is not
asked by everybody at once, again and again.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

FIRST_SECONDS = 1.0
"""Silence after which a request is sent again for the first time."""
_JITTER = 0.5
"""At most so much of a pause comes on top of it."""


class _Waiting(NamedTuple):
    due: float
    pause_seconds: float
    """From when it is sent until it is due once more."""
    payload: bytes


@dataclass(slots=True)
class Outstanding:
    """Requests without an answer yet. Sending one again is harmless: see `messages`."""

    chance: Callable[[], float]
    """Numbers from 0 to 1."""
    longest_seconds: float = 4.0
    """No pause is longer, but for the jitter. A coordinator that is started again is away for a
    second or two."""
    _next: int = 1
    _waiting: dict[int, _Waiting] = field(default_factory=dict)

    def add(self, payload: bytes) -> int:
        """Remembers a request, which is due at once; gives its number, from 1."""
        number = self._next
        self._next += 1
        self._waiting[number] = _Waiting(-math.inf, FIRST_SECONDS, payload)
        return number

    def sent(self, number: int, now: float) -> None:
        waiting = self._waiting[number]
        pause = min(waiting.pause_seconds, self.longest_seconds)
        due = now + pause * (1.0 + _JITTER * self.chance())
        self._waiting[number] = _Waiting(due, 2.0 * pause, waiting.payload)

    def put_off(self, number: int, due: float) -> None:
        """It is not answered yet, and asking before this time would be in vain."""
        self._waiting[number] = _Waiting(due, FIRST_SECONDS, self._waiting[number].payload)

    def waits(self, number: int) -> bool:
        return number in self._waiting

    def answered(self, number: int) -> None:
        del self._waiting[number]

    def due(self, now: float) -> list[tuple[int, bytes]]:
        """The requests to be sent now; they stay due until they are `sent`."""
        return [(number, one.payload) for number, one in self._waiting.items() if now >= one.due]
