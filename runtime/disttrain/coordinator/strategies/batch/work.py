"""Giving out groups of portions, and taking their results. Decides; no I/O."""

from disttrain.coordinator.decisions.transaction import Transaction
from disttrain.coordinator.journal import batch_entries, batch_state
from disttrain.coordinator.journal.batch_state import Batch
from disttrain.coordinator.journal.state import IssuedCommand
from disttrain.coordinator.leases import permutation
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.protocol import commands, messages
from disttrain.coordinator.strategies.batch import rollback
from disttrain.sandblaster.batch import groups
from disttrain.sandblaster.batch.driver import Stage
from disttrain.sandblaster.batch.groups import Attempt

_MOST_HELD = 2
"""Attempts of one replica: one that it computes, and one whose data it reads meanwhile."""
_PATIENCE_SECONDS = 0.5
"""How long a replica may wait for an answer without a group. Not for ever: when it asks again, it
says what it has dropped meanwhile."""
_PAUSE_SECONDS = 0.01
"""Before it asks again."""


def give(transaction: Transaction, request: messages.RequestWork) -> messages.Work:
    """A group for a replica, one first whose answer was lost on the way."""
    batch = transaction.state.batch
    attempt = None
    if batch is not None and _may_work(transaction, batch):
        attempt = _attempt(transaction, batch, request)
    given = () if batch is None or attempt is None else (_lease(transaction, batch, attempt),)
    wait = not transaction.state.phase.ended
    transaction.patience_seconds = _PATIENCE_SECONDS if wait and not given else 0.0
    return messages.Work(
        groups=given,
        wait=wait,
        after_seconds=_PAUSE_SECONDS,
        live_replicas=len(transaction.live.replicas()),
    )


def group_done(
    transaction: Transaction, request: messages.GroupDone
) -> messages.Acknowledged | None:
    """A result counts if it is of this evaluation, and of an attempt that its replica has.

    None: it will count, but not before the shards have answered this incarnation of the
    coordinator.
    """
    batch = transaction.state.batch
    if batch is None or not _is_wanted(batch, request):
        return messages.Acknowledged()
    if batch.course.stage is Stage.PREPARING:
        return None
    if _may_work(transaction, batch):
        transaction.record(batch_entries.GroupStaged(member=request.member, result=request.result))
    return messages.Acknowledged()


def performed(transaction: Transaction, issued: IssuedCommand, result: commands.Performed) -> None:
    """A shard has carried out the command of the run, if this is the incarnation that it knows."""
    batch, shard = transaction.state.batch, issued.member
    if batch is None or batch.returning or shard.index >= len(batch.incarnations):
        return
    if batch.incarnations[shard.index] == shard.incarnation:
        transaction.record(
            batch_entries.ShardPerformed(shard=shard.index, performed=result.performed)
        )


def _is_wanted(batch: Batch, request: messages.GroupDone) -> bool:
    evaluation, result = batch.course.evaluation, request.result
    attempt = evaluation.attempts.get(result.attempt)
    if attempt is None or attempt.worker != batch_state.worker(request.member):
        return False
    return (result.evaluation, result.shards) == (evaluation.number, evaluation.shards)


def _may_work(transaction: Transaction, batch: Batch) -> bool:
    is_computing = batch.course.stage is Stage.COMPUTING and not batch.returning
    is_running = transaction.state.phase is Phase.RUNNING and not transaction.state.stopping
    return is_computing and is_running and rollback.incarnations(transaction) == batch.incarnations


def _attempt(
    transaction: Transaction, batch: Batch, request: messages.RequestWork
) -> Attempt | None:
    evaluation, holding = batch.course.evaluation, request.attempts
    worker = batch_state.worker(request.member)
    if missed := groups.missed(evaluation, worker, holding):
        return missed
    held = sum(number in evaluation.attempts for number in holding)
    if held >= _MOST_HELD or not batch.driver.has_group(batch.course, worker):
        return None
    number = evaluation.next_attempt
    transaction.record(batch_entries.GroupGranted(member=request.member, holding=holding))
    return evaluation.attempts.get(number)


def _lease(transaction: Transaction, batch: Batch, attempt: Attempt) -> messages.GroupLease:
    data, size = transaction.state.data, batch.rules.push_every_portions
    portions = permutation.portion_count(data.samples, data.portion_size)
    first = attempt.group * size
    return messages.GroupLease(
        attempt=attempt.number,
        group=attempt.group,
        evaluation=batch.course.evaluation.number,
        portions=(first, min(first + size, portions)),
        shards=batch.incarnations,
    )
