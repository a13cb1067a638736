"""Downpour SGD in a replica: the loop, and what it needs of the coordinator and the shards."""

from collections.abc import Callable
from functools import partial

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job import defaults
from disttrain.job.strategies import downpour as manifests
from disttrain.parameter_server.client import Versions
from disttrain.replica import accrual
from disttrain.replica.downpour import Downpour, TrainingLoop
from disttrain.replica.training import Training, TrainingInputs
from disttrain.replica.work import Cutting, HeldLeases, LostLeases, WorkSource


class DownpourTraining(Training):
    """See `training.Training`."""

    of = manifests.Downpour

    def __init__(self, given: TrainingInputs) -> None:
        spec, prepared, membership, joined = given
        coordinator = membership.coordinator
        manifest = spec.strategy.only_downpour
        self._computes_on = manifest.computes_on
        buffers = accrual.gradient_buffers(manifest)
        log = membership.open_ledger(joined)
        self._connection = membership.connect(joined, prepared.model, prepared.device, buffers, log)
        run = defaults.extent(spec, prepared.train.count)
        self._downpour = Downpour(self._connection, manifest, spec.replicas.count, run=run)
        self._lost = LostLeases(lambda: coordinator.lost_leases)
        held = HeldLeases(joined.member, self.progress)
        self._source = source = WorkSource(coordinator.request, held, membership.cancellation)
        indices = partial(
            permutation.portion_indices, joined.seed, prepared.train.count, joined.portion_size
        )
        cutting = Cutting(batch_size=defaults.samples_per_step(spec), portion_indices=indices)
        pipeline = prepared.pipeline(joined.seed, source, cutting, membership.cancellation)
        loss = prepared.loss()
        self._loop = TrainingLoop(self._downpour, loss, pipeline, self._lost, joined.seed)

    def begin(self, meanwhile: Callable[[], None]) -> None:
        fetched = self._connection.first_fetch(meanwhile, self._computes_on)
        self._downpour.begin(fetched)

    def train_until(self, ends: Callable[[], bool]) -> None:
        self._loop.train_until(ends)

    def drain(self) -> None:
        self._source.end()
        self._loop.drain()

    def fetch_now(self) -> Versions:
        return self._downpour.fetch_now()

    def evaluated(self) -> None:
        """Else the next gradient would be of what was measured, as old as that took."""
        self._downpour.fetch_again()

    def progress(self) -> Progress:
        return self._downpour.progress(self._lost)

    def report(self) -> ReplicaReport:
        return self._downpour.report(self._lost)

    def release(self) -> None:
        self._connection.fetches.drop()
