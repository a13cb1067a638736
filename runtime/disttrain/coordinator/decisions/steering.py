"""What comes next: the job's phases and the strategies within them. Decides; no I/O.

Everything here may be called at any time and again: a step is taken when the state says that it is
needed and not under way.

A strategy that is not the last one, such as a warm start, ends when its samples are processed. Then
nothing more is given out, every replica pushes what it has, and a checkpoint is made of what the
shards have come to. With this one the next strategy begins, whatever dies later.
"""

from disttrain.coordinator.decisions import closing, membership, news, running
from disttrain.coordinator.decisions.transaction import CoordinatorSide, Transaction
from disttrain.coordinator.journal import batch_entries, job_entries, member_entries
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.phases import FailureReason, IncarnationState, Phase, StopReason
from disttrain.coordinator.protocol import commands
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.messages import Stop


def advance(transaction: Transaction) -> None:
    if transaction.state.phase.ended:
        return
    _check_gradients(transaction)
    if not transaction.state.phase.ended:
        running.give_up_hanging_checkpoint(transaction)
        _prepare_shards(transaction)
        transaction.strategy.watch_the_end(transaction)
    before = None
    while transaction.state.phase is not before and not transaction.state.phase.ended:
        before = transaction.state.phase
        _STEPS[before](transaction)


def stop(transaction: Transaction, request: Stop) -> None:
    """A person wants the job to end: after a checkpoint, or at once.

    The request may be heard several times. A job that closes already does so in any case.
    """
    phase = transaction.state.phase
    if phase.ended:
        return
    if request.at_once or phase is Phase.WAITING:
        transaction.go_to(Phase.STOPPED, StopReason.STOPPED, request.reason)
    elif phase is Phase.RUNNING or transaction.state.may_go_on:
        transaction.record(job_entries.StopAsked())
        if phase is Phase.RUNNING and not transaction.strategy.has_quiet_points:
            transaction.go_to(Phase.DRAINING, StopReason.STOPPED, request.reason)


def _check_gradients(transaction: Transaction) -> None:
    progressed = (
        entry for entry in transaction.decided if isinstance(entry, member_entries.Progressed)
    )
    if not any(entry.non_finite for entry in progressed):
        return
    total = transaction.state.non_finite()
    if total <= transaction.settings.max_non_finite:
        return
    by_replica = ", ".join(
        f"{name}: {n}" for name, n in transaction.state.non_finite_by_name().items()
    )
    settings = transaction.settings
    message = (
        f"{total} gradients were not finite ({by_replica}); maxNonFiniteGradients is "
        f"{settings.max_non_finite}. Try a lower {settings.rate_field} or clipNorm."
    )
    transaction.fail(FailureReason.DIVERGED, message)


def _wait(transaction: Transaction) -> None:
    if transaction.holders_ready() and transaction.live.replicas():
        transaction.go_to(Phase.RUNNING)


def _run_stage(transaction: Transaction) -> None:
    following = transaction.following
    if following is None:
        _tell_replicas(transaction)
        transaction.strategy.run(transaction)
    elif following.fits(transaction):
        if not transaction.state.warm_start.ended:
            _train(transaction)
        if transaction.state.warm_start.ended and transaction.state.phase is Phase.RUNNING:
            _end(transaction, following)


def of_member(transaction: Transaction, member: MemberId) -> CoordinatorSide:
    """The stage that a replica works in: every one begins with the first, whenever it joined."""
    found = transaction.state.group(member)
    has_left = transaction.stage == 0 or (found is not None and found.left_warm_start)
    return transaction.strategy if has_left else transaction.stages[transaction.stage - 1]


def _tell_replicas(transaction: Transaction) -> None:
    if transaction.stage:
        behind = (one for one in transaction.live.replicas() if not one.left_warm_start)
        transaction.tell(behind, commands.LeaveWarmStart())


def _train(transaction: Transaction) -> None:
    if running.met_rule(transaction) is StopReason.SAMPLES:
        transaction.record(batch_entries.WarmStartEnded())
    else:
        transaction.strategy.run(transaction)


def _end(transaction: Transaction, following: CoordinatorSide) -> None:
    busy = [replica for replica in transaction.live.replicas() if not replica.drained]
    transaction.tell(busy, commands.Drain())
    found = transaction.state
    if busy or found.fencings or found.checkpoint is not None or not transaction.holders_ready():
        return
    number = found.warm_start.cut
    if number is None:
        number = found.next_checkpoint
        transaction.record(batch_entries.WarmStartDrained(checkpoint=number))
    if (found.last_checkpoint or 0) >= number:
        transaction.stage += 1
        following.begin(transaction, found.last_checkpoint)
    elif found.next_checkpoint == number or running.may_try_checkpoint_again(transaction):
        running.begin_checkpoint(transaction)


def _prepare_shards(transaction: Transaction) -> None:
    if news.placement(transaction) is None:
        return
    transaction.tell(
        (shard for shard in transaction.live.shards() if not shard.configured), commands.Configure()
    )
    empty = [shard for shard in transaction.live.shards() if not shard.initialised]
    ready = all(shard.configured for shard in empty) and (
        transaction.state.began is not None
        or len(transaction.live.shards()) == transaction.settings.shards
    )
    if empty and ready:
        _upload(transaction, empty)


def _upload(transaction: Transaction, empty: list[Group]) -> None:
    if transaction.commands.of_kind(commands.Upload):
        return
    replicas = transaction.live.workers()
    evaluating = {issued.member for issued in transaction.commands.of_kind(commands.Evaluate)}
    free = [
        replica
        for replica in replicas
        if not transaction.state.data.held(replica.member) and replica.member not in evaluating
    ]
    if free:
        command = commands.Upload(shards=tuple(shard.index for shard in empty))
        incarnations = {shard.index: shard.incarnation for shard in empty}
        transaction.issue(free[0].member, command, incarnations)
    elif len(replicas) >= transaction.settings.replicas:
        # Each may be waiting for this very shard to answer a push, and would wait for ever.
        reason = f"{empty[0].member.name} needs initial values, which a new incarnation can send"
        membership.lose(transaction, replicas[0], IncarnationState.DEAD, reason)


_STEPS = {
    Phase.WAITING: _wait,
    Phase.RUNNING: _run_stage,
    Phase.DRAINING: closing.drain,
    Phase.CHECKPOINTING: closing.save,
    Phase.EXPORTING: closing.export,
    Phase.EVALUATING: closing.evaluate,
}
