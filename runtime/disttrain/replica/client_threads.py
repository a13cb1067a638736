"""Threads that speak with the parameter server for the one that computes: pushes and fetches."""

import queue
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from disttrain.coordinator.protocol.fields import Position
from disttrain.coordinator.protocol.reports import STALENESS_BOUNDS, staleness_bucket
from disttrain.parameter_server.client import FetchClient, FetchResult, Push, PushClient, PushResult
from disttrain.parameter_server.errors import EvaluationOver, PushRefused
from disttrain.replica.agreement import ALONE, Answered
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.flat_vector import ChangedBuffers, Outgoing
from disttrain.replica.ledger import SILENT, Ledger
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.vector import BUFFERS, FROZEN, Vector
from disttrain.telemetry import logs
from disttrain.telemetry.metrics import Histogram
from disttrain.transport.header import Reason
from disttrain.transport.interface import Buffer

LOG = logs.get(__name__)

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
        self.seconds.observe(seconds)
        self.nbytes += nbytes


class ClientThread:
    """Does one thing after the other with one half of the parameter server's client.

    What one of them raises ends the thread and all waits of the process. The methods are for the
    compute thread.
    """

    def __init__(self, name: str, end: Callable[[], None], cancellation: Cancellation) -> None:
        """`end`: called by the thread as it ends."""
        self._end = end
        self._cancellation = cancellation
        self._acts: queue.SimpleQueue[Callable[[], None] | None] = cancellation.new_queue()
        self.transfers = Transfers()
        self.waited_seconds = 0.0
        """How long the compute thread was blocked here, in all."""
        self._thread = cancellation.start(name, self._run)

    def begin(self, act: Callable[[], T]) -> "Future[T]":
        """Do something after all that was begun before.

        The future has what it gives, or EvaluationOver; nothing once the process is cancelled.
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
        """As `begin`, and return when it is done. Raises Cancelled."""
        done: queue.SimpleQueue[T] = self._cancellation.new_queue()
        self._acts.put(lambda: done.put(act()))
        return self._wait_for(done)

    def close(self, timeout: float) -> None:
        """End the thread after all that was begun; wait for so long at most."""
        self._acts.put(None)
        self._thread.join(timeout)

    def _wait_for(self, source: "queue.SimpleQueue[T]") -> T:
        began = self._cancellation.clock()
        item = self._cancellation.get(source)
        self.waited_seconds += self._cancellation.clock() - began
        return item

    def _run(self) -> None:
        try:
            while (act := self._acts.get()) is not None:
                act()
        except BaseException as error:
            self._cancellation.cancel(error)
        finally:
            self._end()


class FetchThread(ClientThread):
    """At most one fetch is under way or waits to be taken; asking again meanwhile changes nothing.

    `client` is used by this thread only.
    """

    def __init__(
        self, client: FetchClient, cancellation: Cancellation, ledger: Ledger = SILENT
    ) -> None:
        self.client = client
        self._ledger = ledger
        self._number = 0
        self.is_asked = False
        """A fetch is under way or waits to be taken."""
        self._is_due = cancellation.new_event()
        """The fetch that was asked for need not wait for its time."""
        self._is_dropped = False
        """It is not to begin any more."""
        self._results: queue.SimpleQueue[FetchResult] = cancellation.new_queue()
        self.last_seconds = 0.0
        """How long the latest fetch took."""
        self.agreement = ALONE
        """On what is here: of a replica's processes all take over a fetch, or none."""
        self._here: FetchResult | None = None
        """What is here, and perhaps not everywhere."""
        super().__init__("fetch", client.close, cancellation)

    def ask(
        self,
        into: Callable[[], dict[Vector, Buffer]],
        land: Callable[[], None] = lambda: None,
        after_seconds: float | None = 0.0,
        fragment: Fragment = WHOLE,
        *,
        steps: int = 0,
    ) -> None:
        """Fetch `after_seconds`, or when it is waited for: with None not before that.

        The two functions are called by the thread, before and after the fetch. `steps`: as in
        `Header.local_steps`. Raises what ended
        this thread or another: nothing fetched would ever arrive, while pushes may go on.
        """
        self._cancellation.check()
        if not self.is_asked:
            self.is_asked = True
            self._is_due.clear()
            self._acts.put(lambda: self._fetch(into, land, after_seconds, fragment, steps))

    def due(self) -> None:
        """Let what was asked for begin, if it waits for that; any thread."""
        self._is_due.set()

    def take(self, within_seconds: float = 0.0) -> FetchResult | None:
        """What arrives within that time, once; None if nothing does. With 0 it never waits.

        Raises Cancelled, or what ended another thread, while it waits.
        """
        if not self.is_asked:
            return None
        result = self._here if self.is_here else None
        if result is None and within_seconds > 0:
            began = self._cancellation.clock()
            self._is_due.set()
            result = self._cancellation.get_within(self._results, within_seconds)
            self.waited_seconds += self._cancellation.clock() - began
        self._here = result
        if not self.agreement.all(result is not None):
            return None
        return self._taken()

    @property
    def is_here(self) -> bool:
        """Whether what was asked for is here, to be taken."""
        self._here = self._here or self._there()
        return self._here is not None

    def wait(self) -> FetchResult | None:
        """What was asked for; None if nothing was. Raises Cancelled."""
        if not self.is_asked:
            return None
        self._is_due.set()
        self._here = self._here or self._wait_for(self._results)
        return self._taken()

    def _taken(self) -> FetchResult:
        found, self._here, self.is_asked = self._here, None, False
        assert found is not None  # noqa: S101  Who calls this has it.
        return replace(found, samples=self.agreement.least(found.samples))

    def drop(self) -> None:
        """Forget what was asked for. Raises Cancelled."""
        self._is_dropped = True
        self._is_due.set()
        self.call(self._there)
        self._here, self._is_dropped, self.is_asked = None, False, False

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
        fragment: Fragment,
        steps: int,
    ) -> None:
        self._is_due.wait(after_seconds)
        if self._is_dropped:
            return
        began = self._cancellation.clock()
        buffers = into()
        result = self.client.fetch(buffers, fragment, steps=steps)
        land()
        nbytes = sum(_fetched(fragment, vector, of.nbytes) for vector, of in buffers.items())
        self.last_seconds = self._cancellation.clock() - began
        self.transfers.add(self.last_seconds, nbytes)
        self._number += 1
        self._ledger.fetched(self._number, result.versions, self.client.shards)
        self._results.put(result)


def _fetched(fragment: Fragment, vector: Vector, nbytes: int) -> int:
    if fragment == WHOLE or vector.name in {FROZEN, BUFFERS}:
        return nbytes
    return fragment.nbytes(vector, nbytes // vector.element_bytes)


class PushThread(ClientThread):
    """Sends pushes in their order, and gives each gradient buffer back when it was answered.

    `client` is used by this thread only; `answered` and the staleness may be read by any.
    """

    def __init__(
        self,
        client: PushClient,
        model: FlatModel,
        cancellation: Cancellation,
        ledger: Ledger = SILENT,
    ) -> None:
        self.client = client
        self._ledger = ledger
        self._changed = ChangedBuffers(model.tensors, model.buffer_values())
        self._free: queue.SimpleQueue[Outgoing] = cancellation.new_queue()
        for outgoing in model.outgoing:
            self._free.put(outgoing)
        self.answered = Answered()
        self.staleness = [0] * len(STALENESS_BOUNDS)
        self.staleness_unknown = 0
        self.refused = 0
        """Pushes that a shard refused."""
        super().__init__("push", client.close, cancellation)

    def acquire(self) -> Outgoing:
        """A gradient buffer that nobody else uses; may wait for a push's answer."""
        try:
            return self._free.get_nowait()
        except queue.Empty:
            return self._wait_for(self._free)

    def submit(self, outgoing: Outgoing, push: Push) -> None:
        outgoing.leave()
        self._acts.put(lambda: self._send(outgoing, push))

    def passed(self, position: Position) -> None:
        """Nothing is to be pushed of what came before this position, but what is submitted."""
        self._acts.put(lambda: self._pass(position))

    def go_on(self, answered: Answered) -> None:
        """Push again after one was too old; everything submitted is answered or held back.

        `answered`: what counts as such in every process of the replica.
        """

        def go_on() -> None:
            self.answered = answered._replace(was_too_stale=False)

        self.call(go_on)

    def give_back(self, outgoing: Outgoing) -> None:
        """A gradient buffer whose contents are not to be pushed."""
        self._free.put(outgoing)

    def wait_answered(self) -> None:
        """Return when everything submitted was answered by every shard. Raises Cancelled."""
        self.call(lambda: None)

    def _send(self, outgoing: Outgoing, push: Push) -> None:
        began = self._cancellation.clock()
        outgoing.wait_left()
        if self.answered.was_too_stale:
            # Other processes of the replica may have sent their parts of it.
            self._ledger.held_back(push, self.client.shards)
            self._free.put(outgoing)
            return
        push.changed = self._changed.runs(outgoing.buffers.vectors)
        try:
            self._note(push, self.client.push(push))
            self._advance(push.position, samples=push.samples, pushes=1)
        except PushRefused as error:
            LOG.warning("push refused", sequence=push.sequence, error=error)
            self._ledger.refused(push.sequence)
            self.refused += 1
            is_too_stale = error.reason is Reason.TOO_STALE
            self.answered = self.answered._replace(was_too_stale=is_too_stale)
        self.transfers.add(self._cancellation.clock() - began, push.nbytes)
        self._free.put(outgoing)

    def _pass(self, position: Position) -> None:
        if not self.answered.was_too_stale:
            self._advance(position)

    def _advance(self, position: Position, *, samples: int = 0, pushes: int = 0) -> None:
        before = self.answered
        self.answered = before._replace(
            position=max(before.position, position),
            samples=before.samples + samples,
            pushes=before.pushes + pushes,
        )

    def _note(self, push: Push, results: list[PushResult]) -> None:
        for result in results:
            self._ledger.acknowledged(push, result)
            if result.staleness < 0:
                self.staleness_unknown += 1
            else:
                self.staleness[staleness_bucket(result.staleness)] += 1
