"""Pushes gradients beside the training step."""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from disttrain.coordinator.protocol.fields import START, Position
from disttrain.coordinator.protocol.reports import STALENESS_BOUNDS, staleness_bucket
from disttrain.parameter_server.client import Push, PushResult
from disttrain.parameter_server.errors import PushRefused
from disttrain.replica.changed_buffers import ChangedBuffers
from disttrain.replica.exchange import PushSide, Versions
from disttrain.replica.flat_model import FlatModel, Outgoing
from disttrain.replica.halt import Halt
from disttrain.replica.ledger import SILENT, Ledger
from disttrain.replica.transfers import Transfers
from disttrain.telemetry import logs

LOG = logs.get(__name__)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Departure:
    """One push, ready to go."""

    outgoing: Outgoing | None
    """None: nothing to send, only the position moves on."""
    position: Position
    samples: int = 0
    scale: float = 1.0
    versions: Versions = ()
    """Of the parameters that the gradient was computed on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Acknowledged:
    """What all shards have answered so far."""

    position: Position = START
    samples: int = 0
    pushes: int = 0


class _Errand(NamedTuple):
    act: Callable[[], None]
    answered: "queue.SimpleQueue[None]"


class PushThread:
    """Sends departures in their order, and gives each gradient buffer back when it was answered.

    `client` is used by this thread only, the methods by the compute thread only; `acknowledged`
    and the staleness may be read by any.
    """

    def __init__(
        self, client: PushSide, model: FlatModel, halt: Halt, ledger: Ledger = SILENT
    ) -> None:
        self._client = client
        self._halt = halt
        self._ledger = ledger
        self._changed = ChangedBuffers(model.tensors, model.buffer_values())
        self._free: queue.SimpleQueue[Outgoing] = queue.SimpleQueue()
        for outgoing in model.outgoing:
            self._free.put(outgoing)
        self._departures: queue.SimpleQueue[Departure | _Errand | None] = queue.SimpleQueue()
        self._sequence = 0
        self.acknowledged = Acknowledged()
        self.staleness = [0] * len(STALENESS_BOUNDS)
        self.staleness_unknown = 0
        self.refused = 0
        """Pushes that a shard refused for what they held."""
        self.waited_seconds = 0.0
        """How long `acquire` and `wait_answered` blocked, in all."""
        self.transfers = Transfers()
        self._thread = threading.Thread(target=self._run, name="push", daemon=True)
        self._thread.start()

    def acquire(self) -> Outgoing:
        """A gradient buffer that nobody else uses; waits for a push's answer when all are out."""
        try:
            return self._free.get_nowait()
        except queue.Empty:
            return self._wait_for(self._free)

    def call(self, act: Callable[[], None]) -> None:
        """Let the thread do something with its client; return when it is done. Raises Halted."""
        answered: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._departures.put(_Errand(act, answered))
        self._wait_for(answered)

    def submit(self, departure: Departure) -> None:
        """Start pushing; the buffer belongs to this thread until it comes out of `acquire`."""
        if departure.outgoing is not None:
            departure.outgoing.leave()
        self._departures.put(departure)

    def wait_answered(self) -> None:
        """Return when everything submitted was answered by every shard. Raises Halted."""
        self.call(_nothing)

    def close(self, timeout: float) -> None:
        """End the thread after what was submitted."""
        self._departures.put(None)
        self._thread.join(timeout)

    def release(self) -> None:
        """The same, however long it takes. Raises what ended the thread, or Halted."""
        self._departures.put(None)
        self._halt.joined(self._thread)

    def _wait_for(self, source: "queue.SimpleQueue[T]") -> T:
        began = time.perf_counter()
        item = self._halt.get(source)
        self.waited_seconds += time.perf_counter() - began
        return item

    def _run(self) -> None:
        try:
            while (departure := self._departures.get()) is not None:
                if isinstance(departure, Departure):
                    self._send(departure)
                else:
                    departure.act()
                    departure.answered.put(None)
        except BaseException as error:
            self._halt.say(error)
        finally:
            self._client.close()

    def _send(self, departure: Departure) -> None:
        if departure.outgoing is None:
            return self._advance(departure, pushes=0)
        began = time.perf_counter()
        departure.outgoing.wait_left()
        self._sequence += 1
        push = push_of(departure, departure.outgoing, self._sequence, self._changed)
        try:
            self._note(departure, self._client.push(push))
            self._advance(departure, pushes=1)
        except PushRefused as error:
            LOG.warning("push refused", sequence=self._sequence, error=error)
            self._ledger.refused(self._sequence)
            self.refused += 1
        self.transfers.add(time.perf_counter() - began, _payload_bytes(push))
        return self._free.put(departure.outgoing)

    def _advance(self, departure: Departure, *, pushes: int) -> None:
        before = self.acknowledged
        self.acknowledged = Acknowledged(
            position=max(before.position, departure.position),
            samples=before.samples + departure.samples,
            pushes=before.pushes + pushes,
        )

    def _note(self, departure: Departure, results: list[PushResult]) -> None:
        for result in results:
            self._ledger.acknowledged(self._sequence, result, departure.samples, departure.position)
            if result.staleness < 0:
                self.staleness_unknown += 1
            else:
                self.staleness[staleness_bucket(result.staleness)] += 1


def push_of(
    departure: Departure, outgoing: Outgoing, sequence: int, changed: ChangedBuffers
) -> Push:
    """What the parameter server's client is to send for a departure."""
    return Push(
        sequence=sequence,
        gradient=outgoing.gradient.buffer,
        versions=departure.versions,
        scale=departure.scale,
        samples=departure.samples,
        lease=departure.position.lease,
        lease_offset=departure.position.offset,
        buffers={v: flat.buffer for v, flat in outgoing.buffers.vectors.items()},
        changed=changed.runs(outgoing.buffers.vectors),
    )


def _payload_bytes(push: Push) -> int:
    runs = push.runs().items()
    return push.gradient.nbytes + sum(
        run.count * vector.element_bytes for vector, ranges in runs for run in ranges
    )


def _nothing() -> None:
    """Done as soon as everything before it is."""
