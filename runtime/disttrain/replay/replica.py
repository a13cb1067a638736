"""One replayed incarnation of a replica: production's loop and exchanges, driven by its log."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.protocol.fields import Position
from disttrain.job import defaults
from disttrain.job.roles import Device
from disttrain.job.spec import Spec
from disttrain.parameter_server.client import FetchResult, Push, PushClient
from disttrain.replay.asynchrony import Observer, PushUnderWay
from disttrain.replay.comparing import ComparingLedger, RecordContradicted
from disttrain.replay.recording import Recording
from disttrain.replay.wires import VirtualTimeCancellation, Wires, compute_with
from disttrain.replica import strategies, task_calls
from disttrain.replica.cancellation import Cancellation, Cancelled
from disttrain.replica.client_threads import FetchThread, PushThread
from disttrain.replica.connection import Connection
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.flat_vector import Outgoing
from disttrain.replica.ledger import Kind, Ledger
from disttrain.replica.pace import NeverWaits
from disttrain.replica.pipeline import Batches, Loaded, PipelineConfig
from disttrain.replica.stepper import TrainingLoop
from disttrain.replica.task_calls import TaskCalls
from disttrain.replica.work import LostLeases, WorkItem
from disttrain.state.placement import Placement
from disttrain.task.loss import BatchLoss, LossContext
from disttrain.task.task import Split
from disttrain.transport.memory import OrdinaryMemory


class Setting(Protocol):
    """What a learner is made of."""

    @property
    def spec(self) -> Spec: ...

    @property
    def task(self) -> TaskCalls: ...

    @property
    def device(self) -> Device: ...

    @property
    def placement(self) -> Placement: ...

    @property
    def seed(self) -> int:
        """Of the order of the data."""
        ...


class Learner:
    """The model, data and loss of a replica."""

    def __init__(self, setting: "Setting", outgoing_buffers: int) -> None:
        spec, self._task = setting.spec, setting.task
        place = task_calls.resolve_device(setting.device)
        self.module = self._task.model(spec.seed)
        self.model = FlatModel(
            self.module,
            OrdinaryMemory(),
            place,
            outgoing_buffers=outgoing_buffers,
            formats=defaults.formats(spec),
            factors=setting.placement.factors,
            frozen=spec.task.frozen,
        )
        self._move = task_calls.mover(place)
        examples = self._task.examples(Split.TRAIN, defaults.samples_per_step(spec))
        config = PipelineConfig(seed=setting.seed)
        self.batches = Batches(examples.dataset, self._task.collate, config, seeded=True)

    def loss(self, batch: Any, context: LossContext) -> BatchLoss:
        return self._task.loss(self.module, self._move(batch), context)


class ReplayedReplica:
    """Goes on as far as its log goes, and the shards let it.

    It is the loop's source of batches too: each step that the log names.
    """

    dry = False

    def __init__(
        self, recording: Recording, wires: Wires, ledger: ComparingLedger, observer: Observer
    ) -> None:
        self.ledger = ledger
        self._recording = recording
        self._wires = wires
        self._observer = observer
        self._items: list[WorkItem] = []
        """Batches since the last push."""
        self._computed_on: Tensor | None = None
        """A copy of the parameters of the first of them."""

    def run(self) -> None:
        compute_with(self._recording.replica_threads)
        spec = self._recording.spec
        training = strategies.stepped(spec)
        self._learner = Learner(self._recording, training.outgoing_buffers(spec))
        model, seed = self._learner.model, self._recording.data.seed
        connection = Connection(
            model,
            self._wires.sides(self.ledger.incarnation),
            VirtualTimeCancellation(self._wires.time),
            self.ledger,
            pushes=partial(_Pushes, self),
            fetches=_Fetches,
        )
        run = defaults.extent(spec, self._recording.data.samples)
        self._stepper = training.stepper(connection, spec, run, lambda *_: NeverWaits())
        loop = TrainingLoop(self._stepper, self._loss, self, LostLeases(frozenset), seed)
        connection.fetches.ask(partial(model.first_fetch_into, self._stepper.computes_on))
        try:
            first = connection.fetches.wait()
            model.adopt_first_fetch()
            if first is not None:
                self._stepper.begin(first)
            loop.train_until(self._ends)
        except (Cancelled, RecordContradicted):
            if self.ledger.following is not None:
                raise

    def next(self, timeout: float) -> Loaded:
        """The batch of the step that the log names next."""
        del timeout
        record = self.ledger.following
        assert record is not None  # noqa: S101  _ends looked
        item = work_item(record, self._recording.data)
        if self._computed_on is None:
            self._computed_on = self._learner.model.parameters.detach().clone()
        self._items.append(item)
        return self._learner.batches[item]

    def drop(self) -> None:
        """A replayed replica ends with its log."""

    def submits(self, push: Push) -> None:
        """What was computed since the last push is pushed."""
        shards, computed_on = len(self._recording.shards), self._computed_on
        if computed_on is None:
            # A fragment, after another one of the same steps.
            computed_on = self._learner.model.parameters.detach().clone()
        under_way = PushUnderWay(computed_on, tuple(self._items), shards)
        self._observer.under_way[self.ledger.incarnation, push.sequence] = under_way
        self.passes()

    def passes(self) -> None:
        """What was computed since the last push is in none any more."""
        self._computed_on = None
        self._items.clear()

    def _loss(self, batch: Any, context: LossContext) -> BatchLoss:
        if self.ledger.following is None:
            # The incarnation ended here, and perhaps of this step.
            raise Cancelled
        return self._learner.loss(batch, context)

    def _ends(self) -> bool:
        """Flush, fetch and measure where the run did between steps; whether no step follows."""
        stepper = self._stepper
        between: dict[Kind, Callable[[], object]] = {
            Kind.FLUSHED: stepper.flush,
            Kind.FETCHING_NOW: stepper.fetch_now,
            Kind.FETCHING_AGAIN: stepper.fetch_again,
            Kind.FETCHING_BESIDE: partial(stepper.measure, lambda _: None),
            Kind.MEASURED: stepper.between_steps,
            Kind.ADOPTED: stepper.between_steps,
        }
        while (kind := self.ledger.following_kind) in between:
            before = self.ledger.passed
            between[Kind(kind)]()
            if self.ledger.passed == before:
                raise RecordContradicted(f"{self.ledger.name} cannot do {Kind(kind).name} here")
        return kind != Kind.STEP


class _Pushes(PushThread):
    """Tells the replica what is pushed."""

    def __init__(
        self,
        replica: ReplayedReplica,
        client: PushClient,
        model: FlatModel,
        cancellation: Cancellation,
        ledger: Ledger,
    ) -> None:
        self._replica = replica
        super().__init__(client, model, cancellation, ledger)

    def submit(self, outgoing: Outgoing, push: Push) -> None:
        self._replica.submits(push)
        super().submit(outgoing, push)

    def passed(self, position: Position) -> None:
        self._replica.passes()
        super().passed(position)


class _Fetches(FetchThread):
    _ledger: ComparingLedger
    """As of the whole connection."""

    def take(self, within_seconds: float = 0.0) -> FetchResult | None:
        """What is there, or comes, if it was adopted or measured here in the run."""
        del within_seconds
        is_taken = self._ledger.following_kind in {Kind.ADOPTED, Kind.MEASURED}
        return self.wait() if is_taken else None


def work_item(record: np.void, data: DataLedger) -> WorkItem:
    epoch, portion = int(record["epoch"]), int(record["portion"])
    first, count = int(record["first"]), int(record["samples"])
    indices = permutation.portions_of(
        data.seed, data.samples, data.portion_size, in_order=bool(data.sources)
    )(portion, epoch)
    return WorkItem(
        lease=int(record["lease"]),
        epoch=epoch,
        portion=portion,
        first=first,
        end_offset=int(record["lease_offset"]),
        indices=indices[first : first + count].tolist(),
    )
