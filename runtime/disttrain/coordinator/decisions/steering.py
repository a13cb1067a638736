"""What comes next: the job's phases and the strategies within them. Decides; no I/O.

Everything here may be called at any time and again: a step is taken when the state says that it is
needed and not under way.

A strategy that is not the last one, such as a warm start, ends when its samples are processed. Then
nothing more is given out, every replica pushes what it has, and a checkpoint is made of what the
shards have come to. With this one the next strategy begins, whatever dies later.
"""

from disttrain.coordinator.decisions import closing, membership, news, running
from disttrain.coordinator.decisions.turn import CoordinatorSide, Turn
from disttrain.coordinator.journal import batch_entries, job_entries, member_entries
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.phases import LifeState, Phase, StopReason
from disttrain.coordinator.protocol import orders
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.messages import FailureReason, Stop


def advance(turn: Turn) -> None:
    if turn.state.phase.ended:
        return
    _check_gradients(turn)
    if not turn.state.phase.ended:
        running.give_up_hanging_checkpoint(turn)
        _prepare_shards(turn)
        turn.strategy.watch_the_end(turn)
    before = None
    while turn.state.phase is not before and not turn.state.phase.ended:
        before = turn.state.phase
        _STEPS[before](turn)


def stop(turn: Turn, request: Stop) -> None:
    """A person wants the job to end: after a checkpoint, or at once.

    The request may be heard several times. A job that closes already does so in any case.
    """
    phase = turn.state.phase
    if phase.ended:
        return
    if request.at_once or phase is Phase.WAITING:
        turn.go_to(Phase.STOPPED, StopReason.STOPPED, request.reason)
    elif phase is Phase.RUNNING or turn.state.may_go_on:
        turn.record(job_entries.StopAsked())
        if phase is Phase.RUNNING and not turn.strategy.has_quiet_points:
            turn.go_to(Phase.DRAINING, StopReason.STOPPED, request.reason)


def _check_gradients(turn: Turn) -> None:
    progressed = (entry for entry in turn.decided if isinstance(entry, member_entries.Progressed))
    if not any(entry.non_finite for entry in progressed):
        return
    total = turn.state.non_finite()
    if total <= turn.settings.max_non_finite:
        return
    by_replica = ", ".join(f"{name}: {n}" for name, n in turn.state.non_finite_by_name().items())
    message = (
        f"{total} gradients were not finite ({by_replica}); maxNonFiniteGradients is "
        f"{turn.settings.max_non_finite}. Try a lower learningRate or clipNorm."
    )
    turn.fail(FailureReason.DIVERGED, message)


def _wait(turn: Turn) -> None:
    if turn.holders_ready() and turn.live.replicas():
        turn.go_to(Phase.RUNNING)


def _run_stage(turn: Turn) -> None:
    following = turn.following
    if following is None:
        _tell_replicas(turn)
        turn.strategy.run(turn)
    elif following.fits(turn):
        if not turn.state.warm_start.ended:
            _train(turn)
        if turn.state.warm_start.ended and turn.state.phase is Phase.RUNNING:
            _end(turn, following)


def of_member(turn: Turn, member: MemberId) -> CoordinatorSide:
    """The stage that a replica works in: every one begins with the first, whenever it joined."""
    found = turn.state.group(member)
    has_left = turn.stage == 0 or (found is not None and found.left_warm_start)
    return turn.strategy if has_left else turn.stages[turn.stage - 1]


def _tell_replicas(turn: Turn) -> None:
    if turn.stage:
        behind = (one for one in turn.live.replicas() if not one.left_warm_start)
        turn.tell(behind, orders.LeaveWarmStart())


def _train(turn: Turn) -> None:
    if running.met_rule(turn) is StopReason.SAMPLES:
        turn.record(batch_entries.WarmStartEnded())
    else:
        turn.strategy.run(turn)


def _end(turn: Turn, following: CoordinatorSide) -> None:
    busy = [replica for replica in turn.live.replicas() if not replica.drained]
    turn.tell(busy, orders.Drain())
    found = turn.state
    if busy or found.fencings or found.checkpoint is not None or not turn.holders_ready():
        return
    number = found.warm_start.cut
    if number is None:
        number = found.next_checkpoint
        turn.record(batch_entries.WarmStartDrained(checkpoint=number))
    if (found.last_checkpoint or 0) >= number:
        turn.stage += 1
        following.begin(turn, found.last_checkpoint)
    elif found.next_checkpoint == number or running.may_try_checkpoint_again(turn):
        running.begin_checkpoint(turn)


def _prepare_shards(turn: Turn) -> None:
    if news.placement(turn) is None:
        return
    turn.tell((shard for shard in turn.live.shards() if not shard.configured), orders.Configure())
    empty = [shard for shard in turn.live.shards() if not shard.initialised]
    ready = all(shard.configured for shard in empty) and (
        turn.state.began is not None or len(turn.live.shards()) == turn.settings.shards
    )
    if empty and ready:
        _upload(turn, empty)


def _upload(turn: Turn, empty: list[Group]) -> None:
    if turn.orders.of_kind(orders.Upload):
        return
    replicas = turn.live.workers()
    evaluating = {issued.member for issued in turn.orders.of_kind(orders.Evaluate)}
    free = [
        replica
        for replica in replicas
        if not turn.state.data.held(replica.member) and replica.member not in evaluating
    ]
    if free:
        order = orders.Upload(shards=tuple(shard.index for shard in empty))
        lives = {shard.index: shard.incarnation for shard in empty}
        turn.issue(free[0].member, order, lives)
    elif len(replicas) >= turn.settings.replicas:
        # Each may be waiting for this very shard to answer a push, and would wait for ever.
        reason = f"{empty[0].member.name} needs initial values, which a new life can send"
        membership.lose(turn, replicas[0], LifeState.DEAD, reason)


_STEPS = {
    Phase.WAITING: _wait,
    Phase.RUNNING: _run_stage,
    Phase.DRAINING: closing.drain,
    Phase.CHECKPOINTING: closing.save,
    Phase.EXPORTING: closing.export,
    Phase.EVALUATING: closing.evaluate,
}
