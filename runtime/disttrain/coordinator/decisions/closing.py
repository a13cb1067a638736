"""How a job ends, phase by phase, or goes on since its model misses the target. Decides; no I/O."""

from collections.abc import Mapping

from disttrain.coordinator.decisions import membership, running, stop_rules
from disttrain.coordinator.decisions.transaction import Transaction
from disttrain.coordinator.phases import FailureReason, IncarnationState, Phase, StopReason
from disttrain.coordinator.protocol import commands

_FINAL_ATTEMPTS = 5


def drain(transaction: Transaction) -> None:
    """Every replica pushes what it has; then nothing is under way any more."""
    busy = [replica for replica in transaction.live.replicas() if not replica.drained]
    if transaction.strategy.has_quiet_points:
        # It has closed at one of them.
        busy = []
    if transaction.state.may_go_on:
        # Who was drained does not train again: replicas only finish what they hold. A loop with
        # its own data holds nothing that could be finished.
        busy = [replica for replica in busy if replica.own_data]
    transaction.tell(busy, commands.Drain())
    if not busy and _is_quiet(transaction) and transaction.holders_ready():
        transaction.go_to(Phase.CHECKPOINTING)


def save(transaction: Transaction) -> None:
    """The last checkpoint, which is tried several times."""
    found = transaction.state
    if (found.last_checkpoint or 0) >= found.final_checkpoint:
        if found.stopping:
            transaction.go_to(Phase.STOPPED, StopReason.STOPPED)
        else:
            transaction.go_to(Phase.EXPORTING)
    elif found.final_failures >= _FINAL_ATTEMPTS:
        _end_without_checkpoint(transaction)
    elif found.checkpoint is None and transaction.holders_ready() and _may_save(transaction):
        running.begin_checkpoint(transaction)


def _may_save(transaction: Transaction) -> bool:
    return not transaction.state.final_failures or running.may_try_checkpoint_again(transaction)


def export(transaction: Transaction) -> None:
    replicas = transaction.live.workers()
    if replicas and not transaction.commands.of_kind(commands.Export):
        checkpoint = transaction.places.checkpoint(transaction.state.last_checkpoint or 0)
        command = commands.Export(checkpoint=checkpoint, out=transaction.places.model_file)
        transaction.issue(replicas[0].member, command)


def evaluate(transaction: Transaction) -> None:
    """A replica measures exactly the exported file, and with that the job is over."""
    final = next((found for found in transaction.state.evaluations if found.final), None)
    if final is not None or not transaction.state.test_samples:
        _conclude(transaction, final.measures if final is not None else {})
        return
    replicas = transaction.live.workers()
    asked = [one for one in transaction.commands.of_kind(commands.Evaluate) if _is_final(one.order)]
    if replicas and not asked:
        transaction.issue(
            replicas[0].member, running.evaluation(transaction, transaction.places.model_file)
        )


def _is_quiet(transaction: Transaction) -> bool:
    found = transaction.state
    held = found.may_go_on and any(found.data.leases.values())
    return not held and not found.fencings and found.checkpoint is None


def _end_without_checkpoint(transaction: Transaction) -> None:
    failures, why = transaction.state.final_failures, transaction.state.checkpoint_failure
    message = f"the last checkpoint failed {failures} times, at last since {why}"
    if transaction.state.stopping:
        transaction.go_to(Phase.STOPPED, StopReason.STOPPED, message)
    else:
        transaction.fail(FailureReason.CHECKPOINT_FAILED, message)


def _conclude(transaction: Transaction, measures: Mapping[str, float]) -> None:
    """The job is complete, unless it was to reach a target and its model does not."""
    target = transaction.settings.stop.target_metric
    missed = target is not None and not stop_rules.is_target_met(target, measures)
    if transaction.state.reason != StopReason.TARGET_METRIC or not missed:
        transaction.go_to(Phase.COMPLETE)
    elif reason := running.met_rule(transaction):
        transaction.go_to(Phase.COMPLETE, reason)
    elif transaction.state.stopping:
        transaction.go_to(Phase.STOPPED, StopReason.STOPPED)
    else:
        _go_on(transaction)


def _go_on(transaction: Transaction) -> None:
    for loop in transaction.live.replicas():
        if loop.own_data:
            reason = "ended when the target seemed reached"
            membership.lose(transaction, loop, IncarnationState.LEFT, reason)
    transaction.go_to(Phase.RUNNING)


def _is_final(command: object) -> bool:
    return isinstance(command, commands.Evaluate) and command.model_file is not None
