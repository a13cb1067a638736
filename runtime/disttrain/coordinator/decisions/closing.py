"""How a job ends, phase by phase, or goes on since its model misses the target. Decides; no I/O."""

from collections.abc import Mapping

from disttrain.coordinator.decisions import membership, running, stop_rules
from disttrain.coordinator.decisions.turn import Turn
from disttrain.coordinator.phases import LifeState, Phase, StopReason
from disttrain.coordinator.protocol import orders
from disttrain.coordinator.protocol.messages import FailureReason

_FINAL_ATTEMPTS = 5


def drain(turn: Turn) -> None:
    """Every replica pushes what it has; then nothing is under way any more."""
    busy = [replica for replica in turn.live.replicas() if not replica.drained]
    if turn.strategy.has_quiet_points:
        # It has closed at one of them.
        busy = []
    if turn.state.may_go_on:
        # Who was drained does not train again: replicas only finish what they hold. A loop with
        # its own data holds nothing that could be finished.
        busy = [replica for replica in busy if replica.own_data]
    turn.tell(busy, orders.Drain())
    if not busy and _is_quiet(turn) and turn.holders_ready():
        turn.go_to(Phase.CHECKPOINTING)


def save(turn: Turn) -> None:
    """The last checkpoint, which is tried several times."""
    found = turn.state
    if (found.last_checkpoint or 0) >= found.final_checkpoint:
        if found.stopping:
            turn.go_to(Phase.STOPPED, StopReason.STOPPED)
        else:
            turn.go_to(Phase.EXPORTING)
    elif found.final_failures >= _FINAL_ATTEMPTS:
        _end_without_checkpoint(turn)
    elif found.checkpoint is None and turn.holders_ready() and _may_save(turn):
        running.begin_checkpoint(turn)


def _may_save(turn: Turn) -> bool:
    return not turn.state.final_failures or running.may_try_checkpoint_again(turn)


def export(turn: Turn) -> None:
    replicas = turn.live.workers()
    if replicas and not turn.orders.of_kind(orders.Export):
        checkpoint = turn.places.checkpoint(turn.state.last_checkpoint or 0)
        order = orders.Export(checkpoint=checkpoint, out=turn.places.model_file)
        turn.issue(replicas[0].member, order)


def evaluate(turn: Turn) -> None:
    """A replica measures exactly the exported file, and with that the job is over."""
    final = next((found for found in turn.state.evaluations if found.final), None)
    if final is not None or not turn.state.test_samples:
        _conclude(turn, final.measures if final is not None else {})
        return
    replicas = turn.live.workers()
    asked = [one for one in turn.orders.of_kind(orders.Evaluate) if _is_final(one.order)]
    if replicas and not asked:
        turn.issue(replicas[0].member, running.evaluation(turn, turn.places.model_file))


def _is_quiet(turn: Turn) -> bool:
    found = turn.state
    held = found.may_go_on and any(found.data.leases.values())
    return not held and not found.fencings and found.checkpoint is None


def _end_without_checkpoint(turn: Turn) -> None:
    failures, why = turn.state.final_failures, turn.state.checkpoint_failure
    message = f"the last checkpoint failed {failures} times, at last since {why}"
    if turn.state.stopping:
        turn.go_to(Phase.STOPPED, StopReason.STOPPED, message)
    else:
        turn.fail(FailureReason.CHECKPOINT_FAILED, message)


def _conclude(turn: Turn, measures: Mapping[str, float]) -> None:
    """The job is complete, unless it was to reach a target and its model does not."""
    target = turn.settings.stop.target_metric
    missed = target is not None and not stop_rules.is_target_met(target, measures)
    if turn.state.reason != StopReason.TARGET_METRIC or not missed:
        turn.go_to(Phase.COMPLETE)
    elif reason := running.met_rule(turn):
        turn.go_to(Phase.COMPLETE, reason)
    elif turn.state.stopping:
        turn.go_to(Phase.STOPPED, StopReason.STOPPED)
    else:
        _go_on(turn)


def _go_on(turn: Turn) -> None:
    for loop in turn.live.replicas():
        if loop.own_data:
            reason = "ended when the target seemed reached"
            membership.lose(turn, loop, LifeState.LEFT, reason)
    turn.go_to(Phase.RUNNING)


def _is_final(order: object) -> bool:
    return isinstance(order, orders.Evaluate) and order.model_file is not None
