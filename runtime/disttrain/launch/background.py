"""Calls that may take long, beside a loop that must go on."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Background:
    """Runs one call after the other in a thread of its own.

    The process may end while a call is under way: nobody waits for a disk or a store that hangs.
    An executor of `concurrent.futures` would.
    """

    def __init__(self, name: str) -> None:
        """`name`: of the thread, which begins with the first call."""
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        """Run it after the calls before it; the future has what it gives or raises."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(run)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return future

    def _run(self) -> None:
        while True:
            self._calls.get()()
