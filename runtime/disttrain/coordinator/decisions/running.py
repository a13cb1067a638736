"""What a running job does every so often: evaluations and checkpoints. Decides; no I/O."""

from collections.abc import Sequence

from disttrain.coordinator.decisions import stop_rules
from disttrain.coordinator.decisions.turn import BeginCheckpoint, Turn
from disttrain.coordinator.journal import job_entries, state
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.phases import Phase, StopReason
from disttrain.coordinator.protocol.orders import Checkpoint, Evaluate, Split
from disttrain.job.roles import Durability

_FAILED_SECONDS = 10.0
"""A checkpoint that failed is tried again after at most this long: a full disk may be emptied."""
_RETRY_SECONDS = 1.0
"""After a failed checkpoint without which the job does not go on."""
_MOST_CHECKPOINT_SECONDS = 3600.0
_MOST_INTERVALS = 10
"""A checkpoint hangs that takes longer than an hour and than so many times `everySeconds`."""


def run(turn: Turn) -> None:
    """Ends when a stop rule is met; until then evaluates and saves what is due."""
    if reason := met_rule(turn):
        turn.go_to(Phase.DRAINING, reason)
        return
    _evaluate_if_due(turn)
    if is_checkpoint_due(turn):
        begin_checkpoint(turn)


def met_rule(turn: Turn) -> StopReason | None:
    data, evaluations = turn.state.data, turn.state.evaluations
    reached = stop_rules.Reached(
        epochs=data.epochs_done,
        steps=data.steps_done,
        samples=turn.state.samples,
        seconds=turn.state.seconds(turn.now),
        iterations=turn.strategy.iterations(turn.state),
        measures=evaluations[-1].measures if evaluations else {},
    )
    return stop_rules.met(turn.settings.stop, reached)


def evaluation(turn: Turn, model_file: str | None) -> Evaluate:
    return Evaluate(
        split=Split.TEST,
        batch_size=turn.settings.evaluation_batch_size,
        model_file=model_file,
    )


def begin_checkpoint(turn: Turn) -> None:
    number = turn.state.next_checkpoint
    # The ledger's snapshot comes before those of the holders: a resume repeats samples rather than
    # losing them.
    turn.state.ledger_time = turn.now
    turn.effects.append(BeginCheckpoint(number=number, ledger=state.to_json(turn.state)))
    turn.record(job_entries.CheckpointBegun(number=number, now=turn.now))
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
        turn.abandon_checkpoint(opened.number, f"it was not written within {most:.0f} s")


def may_try_checkpoint_again(turn: Turn) -> bool:
    """Whether the last attempt is long enough ago, of a checkpoint that everybody waits for."""
    return turn.now - (turn.state.checkpoint_tried or 0.0) >= _RETRY_SECONDS


def save_now(turn: Turn) -> None:
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


def evaluate(turn: Turn, replicas: Sequence[Group]) -> None:
    """One of the replicas shall measure the shards' values, if need be another one than before."""
    turn.record(job_entries.EvaluationBegun(epoch=turn.state.data.epochs_done, now=turn.now))
    # They take turns, so that none falls behind with its portions.
    chosen = replicas[turn.state.totals.evaluations % len(replicas)]
    turn.issue(chosen.member, evaluation(turn, None))


def is_evaluation_due(turn: Turn) -> bool:
    """After every so many epochs, and every so many seconds."""
    rules, found = turn.settings.evaluation, turn.state
    if rules is None or not found.test_samples:
        return False
    epochs, seconds = rules.every_epochs, rules.every_seconds
    if epochs is not None and found.data.epochs_done // epochs > found.evaluated_epoch // epochs:
        return True
    since_last = turn.now - (found.evaluation_tried or turn.now)
    return seconds is not None and since_last >= seconds


def is_checkpoint_due(turn: Turn) -> bool:
    """The first one right after the initial values, then every so often; if it can be made now."""
    found, every = turn.state, turn.settings.checkpoint_seconds
    if turn.settings.durability is Durability.NONE:
        return False
    if found.last_checkpoint != found.next_checkpoint - 1:
        every = min(every, _FAILED_SECONDS)
    tried = found.checkpoint_tried
    is_time = tried is None or turn.now - tried >= every
    return is_time and found.checkpoint is None and turn.holders_ready()
