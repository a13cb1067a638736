"""How a process is: what its own threads say, and what a kubelet hears over HTTP. No I/O here."""

import time
from collections.abc import Callable


class Health:
    """Set by the process's main thread, read by those of HTTP."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_ready = False
        """Whether the process does its work."""
        self._clock = clock
        self._limit_seconds: float | None = None
        self._turned = 0.0

    def begin(self, limit_seconds: float) -> None:
        """The main loop begins; a turn of it that takes longer than this hangs."""
        self._turned = self._clock()
        self._limit_seconds = limit_seconds

    def turn(self) -> None:
        """The main loop goes on."""
        self._turned = self._clock()

    def end(self) -> None:
        """The main loop is over: what follows may take as long as it does."""
        self._limit_seconds = None

    @property
    def is_alive(self) -> bool:
        """Whether the main loop goes on; before it begins and after its end there is no telling."""
        limit = self._limit_seconds
        return limit is None or self._clock() - self._turned <= limit
