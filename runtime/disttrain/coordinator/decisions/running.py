"""What a running job does every so often: evaluations and checkpoints. Decides; no I/O."""

from collections.abc import Sequence

from disttrain.coordinator.decisions import schedule, stop_rules
from disttrain.coordinator.decisions.turn import BeginCheckpoint, Turn
from disttrain.coordinator.journal import checkpoint_entries, state
from disttrain.coordinator.journal.state import Life, Phase
from disttrain.coordinator.protocol.orders import Checkpoint, Evaluate, Split
from disttrain.job.roles import Durability

_RETRY_SECONDS = 1.0
"""After a failed checkpoint without which the job does not go on."""
_MOST_CHECKPOINT_SECONDS = 3600.0
_MOST_INTERVALS = 10
"""A checkpoint hangs that takes longer than an hour and than so many times `everySeconds`."""


def run(turn: Turn) -> None:
    """Ends when a stop rule is met; until then evaluates and saves what is due."""
    reason = stop_rules.met(turn.settings.stop, reached(turn))
    if reason is not None:
        turn.go_to(Phase.DRAINING, reason)
        return
    _evaluate_if_due(turn)
    if is_checkpoint_due(turn):
        begin_checkpoint(turn)


def reached(turn: Turn) -> stop_rules.Reached:
    data, evaluations = turn.state.data, turn.state.evaluations
    return stop_rules.Reached(
        epochs=data.epochs_done,
        steps=data.steps_done,
        samples=turn.state.samples,
        seconds=turn.state.seconds(turn.now),
        iterations=turn.strategy.iterations(turn.state),
        measures=evaluations[-1].measures if evaluations else {},
    )


def evaluation(turn: Turn, model_file: str | None) -> Evaluate:
    """The order to evaluate a file, or without one the shards' present values."""
    return Evaluate(
        split=Split.TEST,
        batch_size=turn.settings.evaluation_batch_size,
        model_file=model_file,
    )


def begin_checkpoint(turn: Turn) -> None:
    number = turn.state.next_checkpoint
    # The ledger is cut before the holders', so that a resume repeats samples rather than losing
    # them.
    turn.state.ledger_time = turn.now
    turn.effects.append(BeginCheckpoint(number=number, ledger=state.to_json(turn.state)))
    turn.record(checkpoint_entries.CheckpointBegun(number=number, now=turn.now))
    order = Checkpoint(
        number=number,
        folder=turn.places.staging(number),
        committed=turn.state.last_checkpoint,
    )
    for holder in turn.holders():
        turn.issue(holder.member, order)


def give_up_hanging_checkpoint(turn: Turn) -> None:
    """One that is not written after very long is a failed one, and another may be tried."""
    opened = turn.state.checkpoint
    most = max(_MOST_CHECKPOINT_SECONDS, _MOST_INTERVALS * turn.settings.checkpoint_seconds)
    if opened is not None and turn.now - opened.began >= most:
        turn.end_checkpoint(opened.number, f"it was not written within {most:.0f} s")


def may_try_checkpoint_again(turn: Turn) -> bool:
    """Whether the last attempt is long enough ago, of a checkpoint that everybody waits for."""
    return turn.now - (turn.state.checkpoint_tried or 0.0) >= _RETRY_SECONDS


def save_now(turn: Turn) -> None:
    """Begins a checkpoint whether it is due or not, while the job trains."""
    found = turn.state
    # Where there are quiet points, the journal holds all that is under way between two of them.
    is_cut_anywhere = not turn.strategy.has_quiet_points
    is_running = found.phase is Phase.RUNNING and turn.holders_ready()
    if is_cut_anywhere and is_running and found.checkpoint is None:
        begin_checkpoint(turn)


def _evaluate_if_due(turn: Turn) -> None:
    replicas = turn.live.workers()
    if not replicas or turn.orders.of_kind(Evaluate):
        return
    if turn.state.evaluating or is_evaluation_due(turn):
        evaluate(turn, replicas)


def evaluate(turn: Turn, replicas: Sequence[Life]) -> None:
    """One of the replicas shall measure the shards' values, if need be another one than before."""
    turn.record(checkpoint_entries.EvaluationBegun(epoch=turn.state.data.epochs_done, now=turn.now))
    turn.issue(_evaluator(turn, replicas).member, evaluation(turn, None))


def is_evaluation_due(turn: Turn) -> bool:
    """By epochs or seconds."""
    rules, found = turn.settings.evaluation, turn.state
    if rules is None or not found.test_samples:
        return False
    return schedule.evaluation_due(
        rules,
        epochs_done=found.data.epochs_done,
        evaluated_epoch=found.evaluated_epoch,
        since_last=turn.now - (found.evaluation_tried or turn.now),
    )


def _evaluator(turn: Turn, replicas: Sequence[Life]) -> Life:
    """Replicas take turns, so that none falls behind with its portions."""
    return replicas[turn.state.totals.evaluations % len(replicas)]


def is_checkpoint_due(turn: Turn) -> bool:
    """By seconds, if it can be made now."""
    found = turn.state
    if turn.settings.durability is Durability.NONE:
        return False
    tried = found.checkpoint_tried
    due = schedule.checkpoint_due(
        since_last=None if tried is None else turn.now - tried,
        every=turn.settings.checkpoint_seconds,
        last_failed=found.last_checkpoint != found.next_checkpoint - 1,
    )
    return due and found.checkpoint is None and turn.holders_ready()
