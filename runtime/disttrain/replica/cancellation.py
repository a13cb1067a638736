"""Ends every wait of a replica's threads when the process is to end."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from disttrain.errors import Interruption

T = TypeVar("T")

_LOOK_AGAIN_SECONDS = 0.1


class Cancelled(Interruption):
    """The process is to end; what was waited for will not come."""


class Cancellation:
    """Asked for once, from any thread; all waits end with `Cancelled`, or with its cause.

    Threads, queues and events made here wait by real time; `disttrain replay` and `simulate` have
    some that do not.
    """

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self.cause: BaseException | None = None
        self.clock: Callable[[], float] = time.perf_counter
        """Seconds, which only grow, as all these waits go by."""

    def cancel(self, cause: BaseException | None = None) -> None:
        """End all waits. The first cause stays."""
        if not self._cancelled.is_set():
            self.cause = cause
        self._cancelled.set()

    def start(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """A thread that does not keep the process alive."""
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def new_queue(self) -> "queue.SimpleQueue[Any]":
        """Between threads that `start` has begun, or the one that began them."""
        return queue.SimpleQueue()

    def new_event(self) -> threading.Event:
        """As `new_queue`."""
        return threading.Event()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise the cause, or `Cancelled` without one, if the process is to end."""
        if self._cancelled.is_set():
            raise self.cause or Cancelled

    def sleep(self, seconds: float) -> None:
        """Wait for that long; raises as `check` as soon as the process is to end."""
        self._cancelled.wait(seconds)
        self.check()

    def get_within(self, source: "queue.SimpleQueue[T]", seconds: float) -> T | None:
        """The next item, or None after so long without one; raises as `check` while it waits."""
        end = self.clock() + seconds
        while (left := end - self.clock()) > 0:
            try:
                return source.get(timeout=min(left, _LOOK_AGAIN_SECONDS))
            except queue.Empty:
                self.check()
        return None

    def get(self, source: "queue.SimpleQueue[T]") -> T:
        """The next item of the queue; raises as `check` while there is none."""
        while True:
            try:
                return source.get(timeout=_LOOK_AGAIN_SECONDS)
            except queue.Empty:
                self.check()
