"""Downpour SGD in a replica: the loop, and what it needs of the coordinator and the shards."""

from collections.abc import Callable
from functools import partial

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol.fields import MemberId, Progress
from disttrain.coordinator.protocol.messages import RequestWork
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job import defaults
from disttrain.job.strategies import downpour as manifests
from disttrain.parameter_server.client import Versions
from disttrain.replica import accrual
from disttrain.replica.downpour import Downpour
from disttrain.replica.training import Training, TrainingInputs
from disttrain.replica.training_loop import TrainingLoop
from disttrain.replica.work import Ask, Cutting, HeldLeases, LostLeases, WorkSource

_MORE_THAN_ANY = 2**53
"""Leases are held, and have been received: so that none is given."""
_LOOK_AGAIN_SECONDS = 0.01


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
        self._connection = membership.connect(
            joined, prepared.model, prepared.device, buffers, log, manifest.shard_rule.pushed
        )
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
        self._cancellation = membership.cancellation
        tell = partial(self._tell_progress, joined.member, coordinator.request)
        self._loop = TrainingLoop(self._downpour, loss, pipeline, self._lost, joined.seed, tell)

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

    def _tell_progress(self, member: MemberId, ask: Ask) -> None:
        """Return when the coordinator has heard how far this replica is. Raises Cancelled."""
        now, many = self.progress(), _MORE_THAN_ANY
        asked = ask(RequestWork(member=member, held=many, last_lease=many, progress=now))
        while not asked.done():
            self._cancellation.sleep(_LOOK_AGAIN_SECONDS)
        asked.result()

    def report(self) -> ReplicaReport:
        return self._downpour.report(self._lost)

    def release(self) -> None:
        self._connection.fetches.drop()
