"""Fetches parameters beside the training step."""

import queue
import threading
import time
from collections.abc import Callable

from disttrain.parameter_server.client import FetchClient, FetchResult
from disttrain.replica.halt import Halt
from disttrain.replica.ledger import SILENT, Ledger
from disttrain.replica.transfers import Transfers
from disttrain.state.vector import Vector
from disttrain.transport.interface import Buffer


class FetchThread:
    """At most one fetch is under way or waits to be taken; asking again meanwhile changes nothing.

    `client` is used by this thread only, the methods by the compute thread only.
    """

    def __init__(self, client: FetchClient, halt: Halt, ledger: Ledger = SILENT) -> None:
        self._client = client
        self._halt = halt
        self._ledger = ledger
        self._number = 0
        self._asked = False
        self._is_due = threading.Event()
        """The fetch that was asked for need not wait for its time."""
        self._is_closing = False
        self._requests: queue.SimpleQueue[_Request | None] = halt.new_queue()
        self._results: queue.SimpleQueue[FetchResult] = halt.new_queue()
        self.waited_seconds = 0.0
        """How long `take` and `wait` blocked, in all."""
        self.transfers = Transfers()
        self.last_seconds = 0.0
        """How long the latest fetch took."""
        self._thread = halt.start("fetch", self._run)

    def ask(
        self,
        into: Callable[[], dict[Vector, Buffer]],
        land: Callable[[], None] = lambda: None,
        after_seconds: float | None = 0.0,
    ) -> None:
        """Fetch `after_seconds`, or when it is waited for: with None not before that.

        The two functions are called by the thread, before and after the fetch. Raises what ended
        this thread or another: nothing fetched would ever arrive, while pushes may go on.
        """
        self._halt.check()
        if not self._asked:
            self._asked = True
            self._is_due.clear()
            self._requests.put((into, land, after_seconds))

    def take(self, within_seconds: float = 0.0) -> FetchResult | None:
        """What arrives within that time, once; None if nothing does. With 0 it never waits.

        Raises Halted, or what ended another thread, while it waits.
        """
        if not self._asked:
            return None
        result = self._there()
        if result is None and within_seconds > 0:
            began = time.perf_counter()
            self._is_due.set()
            result = self._halt.get_within(self._results, within_seconds)
            self.waited_seconds += time.perf_counter() - began
        self._asked = result is None
        return result

    def wait(self) -> FetchResult | None:
        """What was asked for; None if nothing was. Raises Halted."""
        if not self._asked:
            return None
        began = time.perf_counter()
        self._is_due.set()
        result = self._halt.get(self._results)
        self.waited_seconds += time.perf_counter() - began
        self._asked = False
        return result

    def close(self, timeout: float) -> None:
        """End the thread when the fetch under way has ended; one not yet due does not begin."""
        self._tell_to_end()
        self._thread.join(timeout)

    def release(self) -> None:
        """The same, however long it takes. Raises what ended the thread, or Halted."""
        self._tell_to_end()
        self._halt.joined(self._thread)

    def _there(self) -> FetchResult | None:
        try:
            return self._results.get_nowait()
        except queue.Empty:
            return None

    def _tell_to_end(self) -> None:
        self._is_closing = True
        self._is_due.set()
        self._requests.put(None)

    def _run(self) -> None:
        try:
            while (request := self._requests.get()) is not None:
                into, land, after_seconds = request
                self._is_due.wait(after_seconds)
                if self._is_closing:
                    return
                began = time.perf_counter()
                buffers = into()
                result = self._client.fetch(buffers)
                land()
                nbytes = sum(buffer.nbytes for buffer in buffers.values())
                self.last_seconds = time.perf_counter() - began
                self.transfers.add(self.last_seconds, nbytes)
                self._number += 1
                self._ledger.fetched(self._number, result.versions)
                self._results.put(result)
        except BaseException as error:
            self._halt.say(error)
        finally:
            self._client.close()


_Request = tuple[Callable[[], dict[Vector, Buffer]], Callable[[], None], float | None]
