"""A batch method in a replica: the loop, and what it needs of the coordinator and the shards."""

from collections.abc import Callable
from functools import partial

from torch import nn

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.parameter_server.client import Versions
from disttrain.replica.batch_loop import BatchLoop, TrialPoint
from disttrain.replica.groups import GroupStaging, HeldGroups
from disttrain.replica.training import Training, TrainingInputs
from disttrain.replica.work import Cutting, WorkSource
from disttrain.task import checks


class BatchTraining(Training):
    """See `training.Training`."""

    of = Sandblaster

    def __init__(self, given: TrainingInputs) -> None:
        spec, prepared, membership, joined = given
        rule = spec.strategy.rule
        assert isinstance(rule, Sandblaster)  # noqa: S101  The registry has asked.
        ask, member = membership.coordinator.request, joined.member
        self._connection = membership.connect(joined, prepared.model, prepared.device, 0)
        self._point = TrialPoint(self._connection)
        samples, size = prepared.train.count, rule.portion_size
        portion_samples = partial(permutation.portion_samples, samples, size)
        held = HeldGroups(member, self.progress, portion_samples)
        self._staging = GroupStaging(self._connection, ask, member, held)
        indices = partial(permutation.portion_indices, joined.seed, samples, size)
        cutting = Cutting(batch_size=size, portion_indices=indices)
        source = WorkSource(ask, held, membership.halt)
        pipeline = prepared.pipeline(joined.seed, source, cutting, membership.halt, beside=True)
        loss = prepared.loss()
        self._loop = BatchLoop(loss, pipeline, self._staging, self._point, held, joined.seed)

    @staticmethod
    def check_model(model: nn.Module) -> None:
        """Raises ModelError for one whose loss is no sum over samples."""
        checks.check_sum_over_samples(model)

    def begin(self, meanwhile: Callable[[], None]) -> None:
        self._connection.first_fetch(meanwhile)
        self._loop.begin()

    def train_until(self, ends: Callable[[], bool]) -> None:
        self._loop.train_until(ends)

    def drain(self) -> None:
        self._loop.drain()

    def fetch_now(self) -> Versions:
        return self._point.fetch_now()

    def progress(self) -> Progress:
        """See `Training`: the coordinator counts groups by their results, and samples by this."""
        return Progress(samples=self._staging.samples)

    def report(self) -> ReplicaReport:
        counters = self._loop.counters
        return ReplicaReport(
            progress=self.progress(),
            steps=counters.portions,
            pushes=self._staging.groups,
            loss_sum=counters.loss_sum,
            loss_steps=counters.losses,
            reported_sums=counters.reported.sums,
            reported_steps=counters.reported.steps,
            compute_seconds=counters.compute_seconds,
            data_seconds=counters.data_seconds,
            push_seconds=counters.push_seconds,
            fetch_seconds=self._point.waited_seconds,
        )
