"""A batch method in a replica: the loop, and what it needs of the coordinator and the shards."""

from collections.abc import Callable
from functools import partial

from torch import nn

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.parameter_server.client import Versions
from disttrain.replica import data
from disttrain.replica.batch_connection import BatchConnection, TrialPoint
from disttrain.replica.batch_loop import BatchLoop
from disttrain.replica.group_staging import GroupStaging
from disttrain.replica.held_groups import HeldGroups
from disttrain.replica.membership import Membership
from disttrain.replica.pipeline import Pipeline
from disttrain.replica.prepared import Prepared
from disttrain.replica.requested_work import GroupSource
from disttrain.replica.training import Handover, Surroundings, Training
from disttrain.replica.transfers import Transfers
from disttrain.replica.work import Cutting
from disttrain.task import checks


class BatchTraining(Training):
    """See `training.Training`."""

    of = Sandblaster

    def __init__(self, given: Surroundings, before: Handover | None) -> None:
        spec, prepared, membership, joined = given
        rule = spec.strategy.rule
        assert isinstance(rule, Sandblaster)  # noqa: S101  The registry has asked.
        coordinator, member = membership.coordinator, joined.member
        before = before or Handover(
            model=membership.flat_model(joined, prepared.model, prepared.device, 0),
            pushes=Transfers(),
            fetches=Transfers(),
        )
        sides = membership.clients(joined)
        self.pushes, self.fetches = before.pushes, before.fetches
        transfers = self.pushes, self.fetches
        self._connection = BatchConnection(before.model, sides, membership.halt, transfers)
        self._point = TrialPoint(self._connection)
        held = HeldGroups()
        self._staging = GroupStaging(self._connection, coordinator, member, held)
        samples, size = prepared.train.count, rule.portion_size
        portion_samples = partial(permutation.portion_samples, samples, size)
        source = GroupSource(
            coordinator, member, held, self.progress, portion_samples, membership.halt
        )
        pipeline = _pipeline(rule, prepared, joined.seed, source, membership)
        self._loop = BatchLoop(
            data.loss_on_device(prepared),
            pipeline,
            self._staging,
            self._point,
            held,
            joined.seed,
        )

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

    def upload(self, shards: tuple[int, ...]) -> None:
        self._connection.upload(shards)

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

    def release(self) -> Handover:
        self._connection.release()
        return Handover(model=self._connection.model, pushes=self.pushes, fetches=self.fetches)

    def close(self) -> None:
        self._connection.close()


def _pipeline(
    rule: Sandblaster, prepared: Prepared, seed: int, source: GroupSource, membership: Membership
) -> Pipeline:
    indices = partial(permutation.portion_indices, seed, prepared.train.count, rule.portion_size)
    cutting = Cutting(batch_size=rule.portion_size, portion_indices=indices)
    return data.pipeline_beside(prepared, seed, source, cutting, membership.halt)
