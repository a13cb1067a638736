"""From the gradient of a step to the answers to a push: Algorithm 1.1's accrued gradients.

The compute thread accrues and makes each `Push`; the push thread sends it and waits for the shards.
"""

import queue
import time
from dataclasses import dataclass

from torch import Tensor

from disttrain.coordinator.protocol.fields import START, Position
from disttrain.coordinator.protocol.reports import STALENESS_BOUNDS, staleness_bucket
from disttrain.job.strategies.downpour import Downpour
from disttrain.parameter_server.client import Push, PushClient, PushResult, Versions
from disttrain.parameter_server.errors import PushRefused
from disttrain.replica.client_thread import ClientThread
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.flat_vector import ChangedBuffers, Outgoing
from disttrain.replica.halt import Halt
from disttrain.replica.ledger import SILENT, Ledger
from disttrain.telemetry import logs

LOG = logs.get(__name__)


def gradient_buffers(downpour: Downpour) -> int:
    """How many gradients a replica has memory for: those on their way, and what it works on.

    When several steps accrue, a step's gradient has to lie beside their sum. Local steps get one
    buffer more for that; without them the step waits as soon as maxInFlight pushes are unanswered.
    """
    if downpour.push_every == 1:
        return downpour.max_in_flight + 1
    has_local_steps = downpour.rate_of_local_steps > 0
    return max(2, downpour.max_in_flight + (2 if has_local_steps else 1))


class Accrual:
    """The gradient of the next push: backward writes into the buffer that is sent.

    Where a push carries several steps, each is checked and clipped by itself. The first step's
    vector becomes the sum that the later ones are added to, so that a push needs two vectors while
    it accrues and one on its way. Where losses have counts, it is the gradient of the loss over all
    steps' batches together, times the steps in which something counted.
    """

    def __init__(self, model: FlatModel, pushes: "PushThread", push_every: int) -> None:
        self._model = model
        self._pushes = pushes
        self._is_alone = push_every == 1
        """Each step is a push, whose clip factor travels in the header: no pass over the vector."""
        self._sequence = 0
        self._step: Outgoing | None = None
        self._sum: Outgoing | None = None
        self._scale = 1.0
        self._samples = 0
        self._steps = 0
        self._unit: float | None = None
        """Count of the first step in the sum: the others' are measured by it."""
        self._counted = 0.0
        """Sum of all counts, so measured."""

    def begin_step(self) -> Tensor:
        """Where the step's gradient goes, all zero, with the model's `grad` pointing there.

        Waits for a buffer whose push was answered, if the last step's is on its way or is the sum.
        """
        if self._step is None:
            self._step = self._pushes.acquire()
            self._model.collect_gradients_in(self._step.gradient_views)
        return self._step.gradient.tensor.zero_()

    def add(self, scale: float, samples: int, count: float | None = None) -> float:
        """Add `scale` times the step's gradient, which is finite, to what the next push carries.

        `count`: of a loss that says how much its batch counts; all of a push's steps say it.
        Returns the factor that clips the step's vector as it lies there now.
        """
        assert self._step is not None  # noqa: S101  begin_step was before
        if self._is_alone:
            self._sum, self._step = self._step, None
            self._samples, self._scale = samples, scale
            return scale
        self._add_clipped(self._step, scale, samples, count)
        return 1.0

    def take(self, versions: Versions, position: Position) -> tuple[Outgoing, Push] | None:
        """What to push now, computed on these versions; None if nothing was accrued."""
        if self._sum is None:
            return None
        if self._unit is not None and self._counted != self._steps:
            self._sum.gradient.tensor.mul_(self._steps / self._counted)
        self._sequence += 1
        outgoing, push = (
            self._sum,
            Push(
                sequence=self._sequence,
                gradient=self._sum.gradient.buffer,
                versions=versions,
                scale=self._scale,
                samples=self._samples,
                lease=position.lease,
                lease_offset=position.offset,
                buffers={v: flat.buffer for v, flat in self._sum.buffers.vectors.items()},
            ),
        )
        self._sum, self._samples, self._steps = None, 0, 0
        return outgoing, push

    def _add_clipped(self, step: Outgoing, scale: float, samples: int, count: float | None) -> None:
        gradient = step.gradient.tensor
        if scale != 1.0:
            gradient.mul_(scale)
        self._samples += samples
        if count == 0:
            return
        self._steps += 1
        if self._sum is None:
            self._sum, self._step = step, None
            self._unit, self._counted = count, 1.0
        else:
            share = 1.0 if count is None or self._unit is None else count / self._unit
            self._sum.gradient.tensor.add_(gradient, alpha=share)
            self._counted += share


@dataclass(frozen=True, kw_only=True, slots=True)
class Acknowledged:
    """What all shards have answered so far."""

    position: Position = START
    samples: int = 0
    pushes: int = 0


class PushThread(ClientThread):
    """Sends pushes in their order, and gives each gradient buffer back when it was answered.

    `client` is used by this thread only; `acknowledged` and the staleness may be read by any.
    """

    def __init__(
        self, client: PushClient, model: FlatModel, halt: Halt, ledger: Ledger = SILENT
    ) -> None:
        self.client = client
        self._ledger = ledger
        self._changed = ChangedBuffers(model.tensors, model.buffer_values())
        self._free: queue.SimpleQueue[Outgoing] = halt.new_queue()
        for outgoing in model.outgoing:
            self._free.put(outgoing)
        self.acknowledged = Acknowledged()
        self.staleness = [0] * len(STALENESS_BOUNDS)
        self.staleness_unknown = 0
        self.refused = 0
        """Pushes that a shard refused for what they held."""
        super().__init__("push", client.close, halt)

    def acquire(self) -> Outgoing:
        """A gradient buffer that nobody else uses; may wait for a push's answer."""
        try:
            return self._free.get_nowait()
        except queue.Empty:
            return self._wait_for(self._free)

    def submit(self, outgoing: Outgoing, push: Push) -> None:
        """Start pushing what lies in the buffer, which comes out of `acquire` again."""
        outgoing.leave()
        self._acts.put(lambda: self._send(outgoing, push))

    def passed(self, position: Position) -> None:
        """Nothing is to be pushed of what came before this position, but what is submitted."""
        self._acts.put(lambda: self._advance(position))

    def wait_answered(self) -> None:
        """Return when everything submitted was answered by every shard. Raises Halted."""
        self.call(lambda: None)

    def _send(self, outgoing: Outgoing, push: Push) -> None:
        began = time.perf_counter()
        outgoing.wait_left()
        push.changed = self._changed.runs(outgoing.buffers.vectors)
        try:
            self._note(push, self.client.push(push))
            self._advance(push.position, samples=push.samples, pushes=1)
        except PushRefused as error:
            LOG.warning("push refused", sequence=push.sequence, error=error)
            self._ledger.refused(push.sequence)
            self.refused += 1
        self.transfers.add(time.perf_counter() - began, push.nbytes)
        self._free.put(outgoing)

    def _advance(self, position: Position, *, samples: int = 0, pushes: int = 0) -> None:
        before = self.acknowledged
        self.acknowledged = Acknowledged(
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
