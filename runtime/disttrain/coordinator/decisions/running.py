"""What a running job does every so often: evaluations and checkpoints. Decides; no I/O."""

from collections.abc import Sequence

from disttrain.coordinator.decisions import stop_rules
from disttrain.coordinator.decisions.transaction import BeginCheckpoint, Transaction
from disttrain.coordinator.journal import job_entries, state
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.phases import Phase, StopReason
from disttrain.coordinator.protocol.commands import Checkpoint, Evaluate, KeepBest, Split
from disttrain.job.roles import Durability

_FAILED_SECONDS = 10.0
"""A checkpoint that failed is tried again after at most this long: a full disk may be emptied."""
_RETRY_SECONDS = 1.0
"""After a failed checkpoint without which the job does not go on."""
_MOST_CHECKPOINT_SECONDS = 3600.0
_MOST_INTERVALS = 10
"""A checkpoint hangs that takes longer than an hour and than so many times `everySeconds`."""


def run(transaction: Transaction) -> None:
    """Ends when a stop rule is met; until then evaluates and saves what is due."""
    if reason := met_rule(transaction):
        transaction.go_to(Phase.DRAINING, reason)
        return
    _evaluate_if_due(transaction)
    if is_checkpoint_due(transaction):
        begin_checkpoint(transaction)


def met_rule(transaction: Transaction) -> StopReason | None:
    data, evaluations = transaction.state.data, transaction.state.evaluations
    reached = stop_rules.Reached(
        epochs=data.epochs_done,
        steps=data.steps_done,
        samples=transaction.state.samples,
        seconds=transaction.state.seconds(transaction.now),
        iterations=transaction.strategy.iterations(transaction.state),
        measures=evaluations[-1].measures if evaluations else {},
        vain_evaluations=stop_rules.vain_evaluations(
            transaction.settings.stop.patience, transaction.state.improvement
        ),
    )
    return stop_rules.met(transaction.settings.stop, reached)


def evaluation(transaction: Transaction, model_file: str | None) -> Evaluate:
    return Evaluate(
        split=Split.TEST,
        batch_size=transaction.settings.evaluation_batch_size,
        model_file=model_file,
        keep=_keep_best(transaction),
    )


def _keep_best(transaction: Transaction) -> KeepBest | None:
    rules = transaction.settings.evaluation
    if rules is None or rules.keep_best is None:
        return None
    by, known = rules.keep_best, transaction.state.best_model
    is_the_same = known is not None and known.name == (by.name or "")
    return KeepBest(
        file=transaction.places.best_file,
        name=by.name or "",
        wants_lower=by.wants_lower,
        best=known.value if known is not None and is_the_same else None,
    )


def begin_checkpoint(transaction: Transaction) -> None:
    number = transaction.state.next_checkpoint
    # The ledger's snapshot comes before those of the holders: a resume repeats samples rather than
    # losing them.
    transaction.state.ledger_time = transaction.now
    transaction.effects.append(
        BeginCheckpoint(number=number, ledger=state.to_json(transaction.state))
    )
    transaction.record(job_entries.CheckpointBegun(number=number, now=transaction.now))
    command = Checkpoint(
        number=number,
        folder=transaction.places.staging(number),
        committed=transaction.state.last_checkpoint,
        final=transaction.state.phase is Phase.CHECKPOINTING,
    )
    for holder in transaction.holders():
        transaction.issue(holder.member, command)


def give_up_hanging_checkpoint(transaction: Transaction) -> None:
    """One that is not written after very long is a failed one, and another may be tried."""
    opened = transaction.state.checkpoint
    most = max(_MOST_CHECKPOINT_SECONDS, _MOST_INTERVALS * transaction.settings.checkpoint_seconds)
    if opened is not None and transaction.now - opened.began >= most:
        transaction.abandon_checkpoint(opened.number, f"it was not written within {most:.0f} s")


def may_try_checkpoint_again(transaction: Transaction) -> bool:
    """Whether the last attempt is long enough ago, of a checkpoint that everybody waits for."""
    return transaction.now - (transaction.state.checkpoint_tried or 0.0) >= _RETRY_SECONDS


def save_now(transaction: Transaction) -> None:
    found = transaction.state
    # Where there are quiet points, the journal holds all that is under way between two of them.
    is_cut_anywhere = not transaction.strategy.has_quiet_points
    is_running = found.phase is Phase.RUNNING and transaction.holders_ready()
    if is_cut_anywhere and is_running and found.checkpoint is None:
        begin_checkpoint(transaction)


def _evaluate_if_due(transaction: Transaction) -> None:
    replicas = transaction.live.workers()
    if not replicas or transaction.commands.of_kind(Evaluate):
        return
    if transaction.state.evaluating or is_evaluation_due(transaction):
        evaluate(transaction, replicas)


def evaluate(transaction: Transaction, replicas: Sequence[Group]) -> None:
    """One of the replicas shall measure the shards' values, if need be another one than before."""
    transaction.record(
        job_entries.EvaluationBegun(epoch=transaction.state.data.epochs_done, now=transaction.now)
    )
    # They take turns, so that none falls behind with its portions.
    chosen = replicas[transaction.state.totals.evaluations % len(replicas)]
    transaction.issue(chosen.member, evaluation(transaction, None))


def is_evaluation_due(transaction: Transaction) -> bool:
    """After every so many epochs, and every so many seconds."""
    rules, found = transaction.settings.evaluation, transaction.state
    if rules is None or not found.test_samples:
        return False
    epochs, seconds = rules.every_epochs, rules.every_seconds
    if epochs is not None and found.data.epochs_done // epochs > found.evaluated_epoch // epochs:
        return True
    since_last = transaction.now - (found.evaluation_tried or transaction.now)
    return seconds is not None and since_last >= seconds


def is_checkpoint_due(transaction: Transaction) -> bool:
    """The first one right after the initial values, then every so often; if it can be made now."""
    found, every = transaction.state, transaction.settings.checkpoint_seconds
    if transaction.settings.durability is Durability.NONE:
        return False
    if found.last_checkpoint != found.next_checkpoint - 1:
        every = min(every, _FAILED_SECONDS)
    tried = found.checkpoint_tried
    is_time = tried is None or transaction.now - tried >= every
    return is_time and found.checkpoint is None and transaction.holders_ready()
