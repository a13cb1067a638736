"""What comes next: the job's phases. Looks at the state and decides; no I/O.

Everything here may be called at any time and again: a step is taken when the state says that it is
needed and not under way.
"""

from disttrain.coordinator.decisions import (
    closing,
    preparing,
    running,
    stages,
)
from disttrain.coordinator.decisions.turn import Turn
from disttrain.coordinator.journal import job_entries, work_entries
from disttrain.coordinator.journal.state import Phase, StopReason
from disttrain.coordinator.protocol.messages import FailureReason, Stop


def advance(turn: Turn) -> None:
    if turn.state.phase.ended:
        return
    _check_gradients(turn)
    if not turn.state.phase.ended:
        running.give_up_hanging_checkpoint(turn)
        preparing.prepare_shards(turn)
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
    news = (entry for entry in turn.decided if isinstance(entry, work_entries.Progressed))
    if not any(entry.non_finite for entry in news):
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


_STEPS = {
    Phase.WAITING: _wait,
    Phase.RUNNING: stages.run,
    Phase.DRAINING: closing.drain,
    Phase.CHECKPOINTING: closing.save,
    Phase.EXPORTING: closing.export,
    Phase.EVALUATING: closing.evaluate,
}
