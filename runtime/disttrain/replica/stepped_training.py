"""A training whose replicas take step after step, and what it needs of the others."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial

from disttrain.coordinator.protocol.fields import MemberId, Progress
from disttrain.coordinator.protocol.messages import RequestWork
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job import defaults
from disttrain.job.length import Extent
from disttrain.job.spec import Spec
from disttrain.replica.agreement import Act
from disttrain.replica.connection import Connection
from disttrain.replica.pace import MeasuredPace, Pace
from disttrain.replica.stepper import Stepper, TrainingLoop
from disttrain.replica.training import Evaluate, Training, TrainingInputs
from disttrain.replica.work import Ask, Cutting, HeldLeases, LostLeases, WorkSource

MakePace = Callable[[int, int], Pace]


_MORE_THAN_ANY = 2**53
"""Leases are held, and have been received: so that none is given."""
_LOOK_AGAIN_SECONDS = 0.01


class SteppedTraining(Training):
    """See `training.Training`."""

    def __init__(self, given: TrainingInputs) -> None:
        spec, prepared, membership, joined = given
        coordinator = membership.coordinator
        self._cancellation = membership.cancellation
        log = membership.open_ledger(joined)
        self._connection = membership.connect(
            joined, prepared.trained, self.outgoing_buffers(spec), log
        )
        run = defaults.extent(spec, prepared.train.count)
        self._stepper = self.stepper(self._connection, spec, run)
        self._stepper.tell = prepared.tell
        shared = prepared.shared_batches(self._connection.model)
        if shared is not None:
            self._stepper.divide_among(shared)
        self._lost = LostLeases(lambda: coordinator.lost_leases)
        held = HeldLeases(joined.member, self.progress)
        self._source = source = WorkSource(coordinator.request, held, membership.cancellation)
        indices = prepared.train.portions(joined.seed, joined.portion_size)
        cutting = Cutting(batch_size=defaults.samples_per_step(spec), portion_indices=indices)
        pipeline = prepared.pipeline(
            joined.seed, source, cutting, membership.cancellation, part=prepared.batch_part
        )
        loss = prepared.loss()
        tell = partial(self._tell_progress, joined.member, coordinator.request)
        self._loop = TrainingLoop(self._stepper, loss, pipeline, self._lost, joined.seed, tell)

    @staticmethod
    @abstractmethod
    def outgoing_buffers(spec: Spec) -> int:
        """How many pushes a replica has memory for."""

    @staticmethod
    @abstractmethod
    def stepper(
        connection: Connection, spec: Spec, run: Extent, pace: MakePace = MeasuredPace
    ) -> Stepper:
        """What takes the steps; `pace`: makes what says how far computing runs ahead.

        It is told the number of replicas, and of steps for each that fetches.
        """

    def begin(self, meanwhile: Callable[[], None]) -> None:
        stepper = self._stepper
        stepper.tell(Act.ASK_FIRST)
        tell = partial(stepper.tell, Act.BEGIN)
        stepper.begin(self._connection.first_fetch(meanwhile, stepper.computes_on, tell))

    def train_until(self, ends: Callable[[], bool]) -> None:
        self._loop.train_until(ends)

    def drain(self) -> None:
        self._source.end()
        self._loop.drain()

    def measure(self, evaluate: Evaluate) -> None:
        self._stepper.measure(evaluate)

    def progress(self) -> Progress:
        return self._stepper.progress(self._lost)

    def _tell_progress(self, member: MemberId, ask: Ask) -> None:
        """Return when the coordinator has heard how far this replica is. Raises Cancelled."""
        now, many = self.progress(), _MORE_THAN_ANY
        asked = ask(RequestWork(member=member, held=many, last_lease=many, progress=now))
        while not asked.done():
            self._cancellation.sleep(_LOOK_AGAIN_SECONDS)
        asked.result()

    def report(self) -> ReplicaReport:
        return self._stepper.report(self._lost)

    def release(self) -> None:
        self._connection.fetches.drop()
