"""A training whose replicas take step after step, and what it needs of the others."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job import defaults
from disttrain.job.length import Extent
from disttrain.job.spec import Spec
from disttrain.parameter_server.client import Versions
from disttrain.replica.connection import Connection
from disttrain.replica.pace import MeasuredPace, Pace
from disttrain.replica.stepper import Stepper, TrainingLoop
from disttrain.replica.training import Training, TrainingInputs
from disttrain.replica.work import Cutting, HeldLeases, LostLeases, WorkSource

MakePace = Callable[[int, int], Pace]


class SteppedTraining(Training):
    """See `training.Training`."""

    def __init__(self, given: TrainingInputs) -> None:
        spec, prepared, membership, joined = given
        coordinator = membership.coordinator
        log = membership.open_ledger(joined)
        self._connection = membership.connect(
            joined, prepared.model, prepared.device, self.outgoing_buffers(spec), log
        )
        run = defaults.extent(spec, prepared.train.count)
        self._stepper = self.stepper(self._connection, spec, run)
        self._lost = LostLeases(lambda: coordinator.lost_leases)
        held = HeldLeases(joined.member, self.progress)
        self._source = source = WorkSource(coordinator.request, held, membership.cancellation)
        indices = partial(
            permutation.portion_indices, joined.seed, prepared.train.count, joined.portion_size
        )
        cutting = Cutting(batch_size=defaults.samples_per_step(spec), portion_indices=indices)
        pipeline = prepared.pipeline(joined.seed, source, cutting, membership.cancellation)
        loss = prepared.loss()
        self._loop = TrainingLoop(self._stepper, loss, pipeline, self._lost, joined.seed)

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
        stepper.begin(self._connection.first_fetch(meanwhile, stepper.computes_on))

    def train_until(self, ends: Callable[[], bool]) -> None:
        self._loop.train_until(ends)

    def drain(self) -> None:
        self._source.end()
        self._loop.drain()

    def fetch_now(self) -> Versions:
        return self._stepper.fetch_now()

    def evaluated(self) -> None:
        """Else the next gradient would be of what was measured, as old as that took."""
        self._stepper.fetch_again()

    def progress(self) -> Progress:
        return self._stepper.progress(self._lost)

    def report(self) -> ReplicaReport:
        return self._stepper.report(self._lost)

    def release(self) -> None:
        self._connection.fetches.drop()
