"""Downpour SGD in a replica: the loop, and what it needs of the coordinator and the shards."""

from collections.abc import Callable
from functools import partial

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job import defaults
from disttrain.job.strategies import downpour as manifest
from disttrain.parameter_server.client import Versions
from disttrain.replica import data, downpour_config, report
from disttrain.replica.downpour import Downpour, TrainingLoop
from disttrain.replica.lost_leases import LostLeases
from disttrain.replica.requested_work import LeaseSource
from disttrain.replica.training import Handover, Surroundings, Training
from disttrain.replica.work import Cutting


class DownpourTraining(Training):
    """See `training.Training`."""

    of = manifest.Downpour

    def __init__(self, given: Surroundings, before: Handover | None) -> None:
        spec, prepared, membership, joined = given
        assert before is None  # noqa: S101  No job begins with another strategy.
        coordinator = membership.coordinator
        buffers = downpour_config.gradient_buffers(spec)
        self._connection = membership.connect(joined, prepared.model, prepared.device, buffers)
        self.pushes = self._connection.pushes.transfers
        self.fetches = self._connection.fetches.transfers
        self.ledger = self._connection.ledger
        self._downpour = Downpour(self._connection, downpour_config.from_spec(spec))
        self._lost = LostLeases(lambda: coordinator.lost_leases)
        source = LeaseSource(coordinator, joined.member, self.progress, membership.halt)
        self._source = source
        indices = partial(
            permutation.portion_indices, joined.seed, prepared.train.count, joined.portion_size
        )
        cutting = Cutting(batch_size=defaults.samples_per_step(spec), portion_indices=indices)
        pipeline = data.pipeline(prepared, joined.seed, source, cutting, membership.halt)
        loss = data.loss_on_device(prepared)
        self._loop = TrainingLoop(self._downpour, loss, pipeline, self._lost, joined.seed)

    def begin(self, meanwhile: Callable[[], None]) -> None:
        self._downpour.begin(self._connection.first_fetch(meanwhile))

    def train_until(self, ends: Callable[[], bool]) -> None:
        self._loop.train_until(ends)

    def drain(self) -> None:
        self._source.end()
        self._loop.drain()

    def upload(self, shards: tuple[int, ...]) -> None:
        self._connection.upload(shards)

    def fetch_now(self) -> Versions:
        return self._downpour.fetch_now()

    def evaluated(self) -> None:
        """Else the next gradient would be of values as old as the evaluation was long."""
        self._downpour.fetch_now()

    def progress(self) -> Progress:
        return report.progress(self._connection.pushes, self._lost)

    def report(self) -> ReplicaReport:
        pushes, fetches = self._connection.pushes, self._connection.fetches
        return report.replica_report(self._downpour.counters, pushes, fetches, self._lost)

    def release(self) -> Handover:
        self._connection.release()
        model = self._connection.model
        return Handover(model=model, pushes=self.pushes, fetches=self.fetches)

    def close(self) -> None:
        self._connection.close()
