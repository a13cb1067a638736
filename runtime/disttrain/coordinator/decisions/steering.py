"""What comes next: the job's phases. Looks at the state and decides; no I/O.

Everything here may be called at any time and again: a step is taken when the state says that it is
needed and not under way.
"""

from collections.abc import Mapping

from disttrain.coordinator.decisions import joining, membership, schedule, stop_rules
from disttrain.coordinator.decisions.turn import BeginCheckpoint, Turn
from disttrain.coordinator.journal import entries, state
from disttrain.coordinator.journal.state import Life, LifeState, Phase, StopReason
from disttrain.coordinator.protocol.messages import FailureReason, Stop
from disttrain.coordinator.protocol.orders import (
    Checkpoint,
    Configure,
    Drain,
    Evaluate,
    Export,
    Split,
    Upload,
)
from disttrain.job.roles import Durability
from disttrain.transport.header import Vector

_FINAL_ATTEMPTS = 5
_FINAL_RETRY_SECONDS = 1.0


def advance(turn: Turn) -> None:
    """Takes every step that is due."""
    if turn.state.phase.ended:
        return
    _check_gradients(turn)
    if not turn.state.phase.ended:
        _prepare_shards(turn)
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
    elif phase is Phase.RUNNING:
        turn.record(entries.StopAsked())
        turn.go_to(Phase.DRAINING, StopReason.STOPPED, request.reason)
    elif turn.state.may_go_on:
        turn.record(entries.StopAsked())


def _check_gradients(turn: Turn) -> None:
    total = turn.state.non_finite()
    if total <= turn.settings.max_non_finite:
        return
    by_replica = ", ".join(f"{name}: {n}" for name, n in turn.state.non_finite_by_name().items())
    message = (
        f"{total} gradients were not finite ({by_replica}); maxNonFiniteGradients is "
        f"{turn.settings.max_non_finite}. Try a lower learningRate or clipNorm."
    )
    turn.fail(FailureReason.DIVERGED, message)


def _prepare_shards(turn: Turn) -> None:
    layout = turn.state.layout
    if layout is None:
        return
    configuring = {issued.member for issued in turn.open_orders(Configure)}
    for shard in turn.live_shards():
        if not shard.configured and shard.member not in configuring:
            counts = {Vector(key): n for key, n in joining.elements(layout).items()}
            turn.issue(shard.member, Configure(elements=counts, shards=turn.settings.shards))
    empty = [shard for shard in turn.live_shards() if not shard.initialised]
    ready = all(shard.configured for shard in empty) and (
        turn.state.began is not None or len(turn.live_shards()) == turn.settings.shards
    )
    if empty and ready:
        _upload(turn, empty)


def _upload(turn: Turn, empty: list[Life]) -> None:
    if turn.open_orders(Upload):
        return
    replicas = turn.workers()
    free = [replica for replica in replicas if not _is_busy(turn, replica)]
    if free:
        order = Upload(shards=tuple(shard.index for shard in empty))
        lives = {shard.index: shard.incarnation for shard in empty}
        turn.issue(free[0].member, order, lives)
    elif len(replicas) == turn.settings.replicas:
        # Each may be waiting for this very shard to answer a push, and would wait for ever.
        reason = f"shard-{empty[0].index} needs initial values, which a new life can send"
        membership.lose(turn, replicas[0], LifeState.DEAD, reason)


def _is_busy(turn: Turn, replica: Life) -> bool:
    evaluating = {issued.member for issued in turn.open_orders(Evaluate)}
    return bool(turn.state.data.held(replica.member)) or replica.member in evaluating


def _wait(turn: Turn) -> None:
    if turn.shards_ready() and turn.live_replicas():
        turn.go_to(Phase.RUNNING)


def _run(turn: Turn) -> None:
    reason = stop_rules.met(turn.settings.stop, _reached(turn))
    if reason is not None:
        turn.go_to(Phase.DRAINING, reason)
        return
    _evaluate_if_due(turn)
    _checkpoint_if_due(turn)


def _reached(turn: Turn) -> stop_rules.Reached:
    data, evaluations = turn.state.data, turn.state.evaluations
    return stop_rules.Reached(
        epochs=data.epochs_done,
        steps=data.steps_done,
        samples=turn.state.samples,
        seconds=turn.state.seconds(turn.now),
        measures=evaluations[-1].measures if evaluations else {},
    )


def _evaluate_if_due(turn: Turn) -> None:
    replicas = turn.workers()
    if not replicas or turn.open_orders(Evaluate):
        return
    if not turn.state.evaluating:
        if not _is_evaluation_due(turn):
            return
        turn.record(entries.EvaluationBegun(epoch=turn.state.data.epochs_done, now=turn.now))
    # Begun, and nobody is at it: whoever was has died.
    turn.issue(_evaluator(turn, replicas).member, _evaluation(turn, None))


def _is_evaluation_due(turn: Turn) -> bool:
    rules, found = turn.settings.evaluation, turn.state
    if rules is None or not found.test_samples:
        return False
    return schedule.evaluation_due(
        rules,
        epochs_done=found.data.epochs_done,
        evaluated_epoch=found.evaluated_epoch,
        since_last=turn.now - (found.evaluation_tried or turn.now),
    )


def _evaluator(turn: Turn, replicas: list[Life]) -> Life:
    """Replicas take turns, so that none falls behind with its portions."""
    return replicas[turn.state.totals.evaluations % len(replicas)]


def _evaluation(turn: Turn, model_file: str | None) -> Evaluate:
    return Evaluate(
        split=Split.TEST,
        batch_size=turn.settings.evaluation_batch_size,
        model_file=model_file,
    )


def _checkpoint_if_due(turn: Turn) -> None:
    found = turn.state
    if turn.settings.durability is Durability.NONE:
        return
    tried = found.checkpoint_tried
    due = schedule.checkpoint_due(
        since_last=None if tried is None else turn.now - tried,
        every=turn.settings.checkpoint_seconds,
        last_failed=found.last_checkpoint != found.next_checkpoint - 1,
    )
    if due and found.checkpoint is None and turn.shards_ready():
        _begin_checkpoint(turn)


def _begin_checkpoint(turn: Turn) -> None:
    number = turn.state.next_checkpoint
    # The ledger is cut before the shards', so that a resume repeats samples rather than losing
    # them.
    turn.state.ledger_time = turn.now
    turn.effects.append(BeginCheckpoint(number=number, ledger=state.to_json(turn.state)))
    turn.record(entries.CheckpointBegun(number=number, now=turn.now))
    order = Checkpoint(number=number, folder=turn.places.staging(number))
    for shard in turn.live_shards():
        turn.issue(shard.member, order)


def _drain(turn: Turn) -> None:
    draining = {issued.member for issued in turn.open_orders(Drain)}
    busy = [replica for replica in turn.live_replicas() if not replica.drained]
    if turn.state.may_go_on:
        # Who was drained does not train again: replicas only finish what they hold. A loop with
        # its own data holds nothing that could be finished.
        busy = [replica for replica in busy if replica.own_data]
    for replica in busy:
        if replica.member not in draining:
            turn.issue(replica.member, Drain())
    if not busy and _is_quiet(turn) and turn.shards_ready():
        turn.go_to(Phase.CHECKPOINTING)


def _is_quiet(turn: Turn) -> bool:
    """No update is under way, if nobody trains, and no checkpoint."""
    found = turn.state
    held = found.may_go_on and any(found.data.leases.values())
    return not held and not found.fencings and found.checkpoint is None


def _last_checkpoint(turn: Turn) -> None:
    found = turn.state
    if (found.last_checkpoint or 0) >= found.final_checkpoint:
        if found.stopping:
            turn.go_to(Phase.STOPPED, StopReason.STOPPED)
        else:
            turn.go_to(Phase.EXPORTING)
    elif found.final_failures >= _FINAL_ATTEMPTS:
        _end_without_checkpoint(turn)
    elif found.checkpoint is None and turn.shards_ready():
        waited = turn.now - (found.checkpoint_tried or 0.0)
        if not found.final_failures or waited >= _FINAL_RETRY_SECONDS:
            _begin_checkpoint(turn)


def _end_without_checkpoint(turn: Turn) -> None:
    message = f"the last checkpoint failed {turn.state.final_failures} times; see the log"
    if turn.state.stopping:
        turn.go_to(Phase.STOPPED, StopReason.STOPPED, message)
    else:
        turn.fail(FailureReason.CHECKPOINT_FAILED, message)


def _export(turn: Turn) -> None:
    replicas = turn.workers()
    if replicas and not turn.open_orders(Export):
        checkpoint = turn.places.checkpoint(turn.state.last_checkpoint or 0)
        order = Export(checkpoint=checkpoint, out=turn.places.model_file)
        turn.issue(replicas[0].member, order)


def _evaluate_result(turn: Turn) -> None:
    final = next((found for found in turn.state.evaluations if found.final), None)
    if final is not None or not turn.state.test_samples:
        _conclude(turn, final.measures if final is not None else {})
        return
    replicas = turn.workers()
    asked = [one for one in turn.open_orders(Evaluate) if _is_final(one.order)]
    if replicas and not asked:
        turn.issue(replicas[0].member, _evaluation(turn, turn.places.model_file))


def _conclude(turn: Turn, measures: Mapping[str, float]) -> None:
    """The job is complete, unless it was to reach a target and its model does not."""
    target = turn.settings.stop.target_metric
    missed = target is not None and not stop_rules.is_target_met(target, measures)
    if turn.state.reason != StopReason.TARGET_METRIC or not missed:
        turn.go_to(Phase.COMPLETE)
    elif reason := stop_rules.met(turn.settings.stop, _reached(turn)):
        turn.go_to(Phase.COMPLETE, reason)
    elif turn.state.stopping:
        turn.go_to(Phase.STOPPED, StopReason.STOPPED)
    else:
        _go_on(turn)


def _go_on(turn: Turn) -> None:
    for loop in turn.live_replicas():
        if loop.own_data:
            reason = "ended when the target seemed reached"
            membership.lose(turn, loop, LifeState.LEFT, reason)
    turn.go_to(Phase.RUNNING)


def _is_final(order: object) -> bool:
    return isinstance(order, Evaluate) and order.model_file is not None


_STEPS = {
    Phase.WAITING: _wait,
    Phase.RUNNING: _run,
    Phase.DRAINING: _drain,
    Phase.CHECKPOINTING: _last_checkpoint,
    Phase.EXPORTING: _export,
    Phase.EVALUATING: _evaluate_result,
}
