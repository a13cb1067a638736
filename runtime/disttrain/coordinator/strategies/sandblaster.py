"""A batch method: commands to the shards, groups to the replicas, and what comes in between.

Decides; no I/O. The method itself is decided by the `Driver`, which journal entries call: here is
what it is told, and when. Nothing is under way before a command that prepares an evaluation is
given; so that is where checkpoints are taken, where the model is measured, and where the job ends.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

from disttrain.coordinator.decisions import running
from disttrain.coordinator.decisions.transaction import CoordinatorSide, Transaction
from disttrain.coordinator.journal import batch_entries, batch_state, member_entries, resume
from disttrain.coordinator.journal.batch_state import Batch
from disttrain.coordinator.journal.state import IssuedCommand, State
from disttrain.coordinator.leases import permutation
from disttrain.coordinator.phases import FailureReason, Phase, StopReason
from disttrain.coordinator.protocol import commands, messages
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.status.watch import Watch
from disttrain.coordinator.strategies.batch import rollback, status, work
from disttrain.job.roles import Durability
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.sandblaster.batch.driver import Stage
from disttrain.sandblaster.method import End
from disttrain.sandblaster.operations import FETCHABLE

MOST_GROUPS = 200_000
"""Of a batch. A command names the winner of each, some twelve bytes, and is at most 8 MiB long."""
_UNTOLD_BYTES = 64 * 2**20
"""Of gradients that a shard may hold before it is told which of them count."""
_ENDS = {
    End.GRADIENT: "no element of the gradient is larger than gradientTolerance",
    End.CHANGE: "the loss changed by no more than changeTolerance",
    End.NO_DESCENT: "no step makes the loss smaller, as far as these numbers can tell",
    End.NOT_FINITE: "the loss or the gradient at the first point is not a finite number",
    End.NO_MINIMUM: "the loss has no minimum that can be reached: it falls without an end, or up "
    "to points where it or its gradient is not a finite number",
}
_REMEDIES = {
    End.NOT_FINITE: "See that the data and the initial parameters hold none, and that the loss "
    "does not overflow.",
    End.NO_MINIMUM: "See that the loss has a lower bound and does not overflow (compute it of "
    "logits, add a penalty, or take strategy.sandblaster.precision: float64).",
}
"""Ends that are failures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchMethod(CoordinatorSide):
    """A method whose every point is measured on a whole batch, by all replicas together."""

    of = Sandblaster

    rules: Sandblaster

    @staticmethod
    def kept(rule: Sandblaster) -> tuple[str, ...]:
        del rule
        return FETCHABLE

    @classmethod
    def made(cls, rule: Sandblaster, common: Settings) -> Self:
        """What a manifest asks for, without what is done before."""
        field, size = "spec.strategy.sandblaster.portionSize", rule.portion_size
        own = replace(common, portion_size=size, batch_size_field=field, portion_size_field=field)
        return cls(settings=own, rules=rule.model_copy(update={"warm_start": None}))

    @property
    def has_quiet_points(self) -> bool:
        """Before each command that prepares an evaluation."""
        return True

    @property
    def own_data_problem(self) -> str:
        return "a loop with its own data cannot be part of a batch; sandblaster has replicas"

    def has_begun(self, state: State) -> bool:
        return state.batch is not None

    def iterations(self, state: State) -> int:
        return 0 if state.batch is None else state.batch.course.method.progress.iteration

    def loss(self, state: State, watch: Watch) -> float | None:
        """Over the batch at the point accepted last."""
        del watch
        progress = None if state.batch is None else state.batch.course.method.progress
        return None if progress is None or not progress.evaluations else progress.loss

    def status(self, state: State) -> dict[str, Any]:
        found = status.batch(state)
        return {} if found is None else {"sandblaster": found}

    def fits(self, transaction: Transaction) -> bool:
        return self._groups_of_the_data(transaction) is not None

    def begin(self, transaction: Transaction, checkpoint: int | None) -> None:
        groups = self._groups_of_the_data(transaction)
        if groups is None:
            return
        begun = batch_entries.RunBegun(
            rules=self.rules,
            groups=groups,
            seed=transaction.settings.seed,
            shards=rollback.incarnations(transaction),
            cut=checkpoint,
        )
        transaction.record(begun)

    def run(self, transaction: Transaction) -> None:
        if not transaction.holders_ready() or not transaction.state.data.samples:
            return
        batch = self._by_the_manifest(transaction)
        if batch is None or not rollback.are_together(transaction, batch):
            return
        if batch.course.stage is Stage.COMPUTING and transaction.state.stopping:
            transaction.record(batch_entries.RunInterrupted())
        if batch.course.stage is Stage.COMPUTING:
            _tell_winners(transaction, batch)
        elif batch.course.stage is Stage.DONE:
            _end(transaction, batch)
        elif not _is_held_back(transaction, batch):
            _give(transaction, batch)

    def watch_the_end(self, transaction: Transaction) -> None:
        rollback.watch_the_end(transaction)

    def give(self, transaction: Transaction, request: messages.RequestWork) -> messages.Work:
        return work.give(transaction, request)

    def take(
        self, transaction: Transaction, request: messages.GroupDone
    ) -> messages.Acknowledged | None:
        return work.group_done(transaction, request)

    def answered(
        self, transaction: Transaction, issued: IssuedCommand, result: commands.Result
    ) -> None:
        if isinstance(result, commands.CommandFailed):
            rollback.failed(transaction, issued, result)
        elif isinstance(result, commands.Performed):
            work.performed(transaction, issued, result)
        else:
            rollback.rolled_back(transaction, issued)

    def shard_lost(self, transaction: Transaction) -> None:
        rollback.shard_lost(transaction)

    def has_work(self, transaction: Transaction, member: MemberId) -> bool:
        """A group, or what is left of a stage before."""
        batch, worker = transaction.state.batch, batch_state.worker(member)
        attempts = () if batch is None else batch.course.evaluation.attempts.values()
        has_group = any(attempt.worker == worker for attempt in attempts)
        return has_group or CoordinatorSide.has_work(self, transaction, member)

    def _by_the_manifest(self, transaction: Transaction) -> Batch | None:
        """The method, which begins if it has not, by the manifest's rules; None: the job fails.

        The manifest may be another one than when the checkpoint was made that the job goes on from.
        """
        batch = transaction.state.batch
        if batch is None:
            self.begin(transaction, None)
        elif batch.rules != self.rules:
            groups = self._groups_of_the_data(transaction)
            if groups is None:
                return None
            said = tuple(str(change) for change in resume.between(batch.rules, self.rules))
            entry = batch_entries.RulesChanged(rules=self.rules, groups=groups, changes=said)
            transaction.record(entry)
        return transaction.state.batch

    def _groups_of_the_data(self, transaction: Transaction) -> int | None:
        """How many there are, of portions; None: they do not fit a batch, and the job fails."""
        rules = self.rules
        portions = permutation.portion_count(transaction.state.data.samples, rules.portion_size)
        groups = -(-portions // rules.push_every_portions)
        size = rules.groups_of_a_batch
        if (size or groups) > MOST_GROUPS:
            message = (
                f"strategy.sandblaster.portionSize {rules.portion_size} times pushEveryPortions "
                f"{rules.push_every_portions} makes {size or groups:,} groups of a batch, and "
                f"{MOST_GROUPS:,} are the most: take larger portions or groups"
            )
            transaction.fail(FailureReason.BATCH_TOO_LARGE, message)
            return None
        if size is None or size < groups:
            return groups
        message = (
            f"strategy.sandblaster.batchSize is {rules.batch_size}, which makes {size} groups of "
            f"portions, and the data has only {groups}: take batchSize all, or smaller portions"
        )
        transaction.fail(FailureReason.BATCH_TOO_LARGE, message)
        return None


def _end(transaction: Transaction, batch: Batch) -> None:
    progress = batch.course.method.progress
    end = progress.end
    words = "" if end is None else _ENDS[end]
    if end is not None and (remedy := _REMEDIES.get(end)):
        points = progress.non_finite
        cut = f" (trial points that were not finite: {points})" if points else ""
        transaction.fail(FailureReason.DIVERGED, f"{words}{cut}. {remedy}")
    else:
        # A gradient that is still large tells of a loss whose gradient is not its own.
        largest = f"; the gradient's largest element is {progress.largest:.2g}"
        transaction.go_to(Phase.DRAINING, StopReason.CONVERGED, words + largest)


def _is_held_back(transaction: Transaction, batch: Batch) -> bool:
    if batch.course.stage is not Stage.PREPARING or batch.sent:
        return False
    if batch.course.method.progress.end is not None:
        # The last command: only after it is the point accepted last there to be read.
        return False
    if transaction.state.checkpoint is not None or transaction.commands.of_kind(commands.Evaluate):
        return True
    stop = StopReason.STOPPED if transaction.state.stopping else running.met_rule(transaction)
    saves = _has_gone_on(batch) and running.is_checkpoint_due(transaction)
    is_due = stop is not None or saves or _is_evaluation_due(transaction, batch)
    if is_due and batch.course.request.settles:
        # Whatever is due reads the parameters: they have to be the point accepted last.
        transaction.record(batch_entries.PointAccepted())
        return False
    if stop is not None:
        transaction.go_to(Phase.DRAINING, stop)
    elif saves:
        running.begin_checkpoint(transaction)
    elif is_due:
        running.evaluate(transaction, transaction.live.workers())
    return is_due or _needs_a_snapshot(transaction, batch)


def _has_gone_on(batch: Batch) -> bool:
    """Since the checkpoint: one that takes longer than `everySeconds` is due again at its end."""
    return batch.cut is None or batch.cut.order.number != batch.course.order.number


def _is_evaluation_due(transaction: Transaction, batch: Batch) -> bool:
    """Only where the point is another one than at the last evaluation."""
    if not transaction.live.workers():
        return False
    is_new = batch.course.method.progress.iteration != batch.evaluated_iteration
    return transaction.state.evaluating or (is_new and running.is_evaluation_due(transaction))


def _needs_a_snapshot(transaction: Transaction, batch: Batch) -> bool:
    """Before the first command there is a checkpoint: whatever is lost later, all return to it."""
    return batch.cut_number is None and transaction.settings.durability is not Durability.NONE


def _give(transaction: Transaction, batch: Batch) -> None:
    """The command to every shard that has not answered it; an earlier incarnation's is void."""
    given = set()
    for issued in transaction.commands.of_kind(commands.Perform):
        if isinstance(issued.order, commands.Perform) and issued.order.order == batch.course.order:
            given.add(issued.member)
        else:
            transaction.record(member_entries.CommandClosed(id=issued.id))
    for shard in transaction.live.shards():
        if shard.index not in batch.course.answers and shard.member not in given:
            transaction.issue(shard.member, commands.Perform(order=batch.course.order))


def _tell_winners(transaction: Transaction, batch: Batch) -> None:
    untold = len(batch.course.evaluation.winners) - batch.told
    if untold < _most_untold(transaction) or transaction.commands.of_kind(commands.Decide):
        return
    news = batch.driver.decided(batch.course, batch.told)
    for shard in transaction.live.shards():
        transaction.issue(shard.member, commands.Decide(news=news))


def _most_untold(transaction: Transaction) -> int:
    layout = transaction.state.layout
    elements = 0 if layout is None else sum(tensor.elements for tensor in layout.tensors)
    return max(1, _UNTOLD_BYTES * transaction.settings.shards // (8 * max(1, elements)))
