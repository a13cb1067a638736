"""Fetches parameters beside the training step."""

import queue
import threading
import time
from collections.abc import Callable

from disttrain.parameter_server.client import FetchClient, FetchResult
from disttrain.replica.client_thread import ClientThread
from disttrain.replica.halt import Halt
from disttrain.replica.ledger import SILENT, Ledger
from disttrain.state.vector import Vector
from disttrain.transport.interface import Buffer


class FetchThread(ClientThread):
    """At most one fetch is under way or waits to be taken; asking again meanwhile changes nothing.

    `client` is used by this thread only.
    """

    def __init__(self, client: FetchClient, halt: Halt, ledger: Ledger = SILENT) -> None:
        self.client = client
        self._ledger = ledger
        self._number = 0
        self._asked = False
        self._is_due = threading.Event()
        """The fetch that was asked for need not wait for its time."""
        self._is_dropped = False
        """It is not to begin any more."""
        self._results: queue.SimpleQueue[FetchResult] = halt.new_queue()
        self.last_seconds = 0.0
        """How long the latest fetch took."""
        super().__init__("fetch", client.close, halt)

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
            self._acts.put(lambda: self._fetch(into, land, after_seconds))

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
        self._is_due.set()
        result = self._wait_for(self._results)
        self._asked = False
        return result

    def drop(self) -> None:
        """Forget what was asked for. Raises Halted."""
        self._is_dropped = True
        self._is_due.set()
        self.call(self._there)
        self._is_dropped = self._asked = False

    def close(self, timeout: float) -> None:
        """End the thread when the fetch under way has ended; one not yet due does not begin."""
        self._is_dropped = True
        self._is_due.set()
        super().close(timeout)

    def _there(self) -> FetchResult | None:
        try:
            return self._results.get_nowait()
        except queue.Empty:
            return None

    def _fetch(
        self,
        into: Callable[[], dict[Vector, Buffer]],
        land: Callable[[], None],
        after_seconds: float | None,
    ) -> None:
        self._is_due.wait(after_seconds)
        if self._is_dropped:
            return
        began = time.perf_counter()
        buffers = into()
        result = self.client.fetch(buffers)
        land()
        nbytes = sum(buffer.nbytes for buffer in buffers.values())
        self.last_seconds = time.perf_counter() - began
        self.transfers.add(self.last_seconds, nbytes)
        self._number += 1
        self._ledger.fetched(self._number, result.versions)
        self._results.put(result)
