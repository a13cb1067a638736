"""A thread that moves values between a replica and its shards, in one direction."""

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from disttrain.parameter_server.errors import EvaluationOver
from disttrain.replica.halt import Halt
from disttrain.telemetry.metrics import Histogram

T = TypeVar("T")


class Transfers:
    """How long pushes or fetches took and how much they carried.

    Filled by one thread, read by others.
    """

    def __init__(self) -> None:
        self.seconds = Histogram()
        self.nbytes = 0
        """Payload, without headers."""

    def add(self, seconds: float, nbytes: int) -> None:
        """Count a push to all shards, or a fetch from all of them, that has ended."""
        self.seconds.observe(seconds)
        self.nbytes += nbytes


class ClientThread:
    """Does one thing after the other with one half of the parameter server's client.

    What one of them raises ends the thread and all waits of the process. The methods are for the
    compute thread.
    """

    def __init__(self, name: str, end: Callable[[], None], halt: Halt) -> None:
        """`end`: called by the thread as it ends."""
        self._end = end
        self._halt = halt
        self._acts: queue.SimpleQueue[Callable[[], None] | None] = halt.new_queue()
        self.transfers = Transfers()
        self.waited_seconds = 0.0
        """How long the compute thread was blocked here, in all."""
        self._thread = halt.start(name, self._run)

    def begin(self, act: Callable[[], T]) -> "Future[T]":
        """Do something after all that was begun before.

        The future has what it gives, or EvaluationOver; nothing once the process is halted.
        """
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(act())
            except EvaluationOver as error:
                future.set_exception(error)

        self._acts.put(run)
        return future

    def call(self, act: Callable[[], T]) -> T:
        """Do something after all that was begun before; return when it is done. Raises Halted."""
        done: queue.SimpleQueue[T] = self._halt.new_queue()
        self._acts.put(lambda: done.put(act()))
        return self._wait_for(done)

    def close(self, timeout: float) -> None:
        """End the thread after all that was begun; wait for so long at most."""
        self._acts.put(None)
        self._thread.join(timeout)

    def _wait_for(self, source: "queue.SimpleQueue[T]") -> T:
        began = time.perf_counter()
        item = self._halt.get(source)
        self.waited_seconds += time.perf_counter() - began
        return item

    def _run(self) -> None:
        try:
            while (act := self._acts.get()) is not None:
                act()
        except BaseException as error:
            self._halt.say(error)
        finally:
            self._end()
