"""What the answers to commands lead to. Decides; no I/O."""

from disttrain.coordinator.decisions import stop_rules
from disttrain.coordinator.decisions.transaction import CommitCheckpoint, Transaction
from disttrain.coordinator.journal import batch_entries, job_entries, member_entries
from disttrain.coordinator.journal.state import BestModel, Evaluation, IssuedCommand
from disttrain.coordinator.phases import FailureReason, Phase
from disttrain.coordinator.protocol import commands, messages
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.job import stop as stop_section
from disttrain.transport.header import Role

_FATAL = {
    commands.Configure: FailureReason.LAUNCH_FAILED,
    commands.Upload: FailureReason.LAUNCH_FAILED,
    commands.Evaluate: FailureReason.EVALUATION_FAILED,
    commands.Export: FailureReason.EXPORT_FAILED,
}
"""Commands without which the job cannot go on."""


def command_done(transaction: Transaction, request: messages.CommandDone) -> None:
    """Closes the command and does what follows; an answer that came before changes nothing."""
    issued = transaction.state.orders.get(request.order)
    if issued is None or issued.member != request.member:
        return
    transaction.record(member_entries.CommandClosed(id=issued.id))
    if isinstance(issued.order, commands.Perform | commands.Decide | commands.RollBack):
        transaction.strategy.answered(transaction, issued, request.result)
    elif isinstance(request.result, commands.CommandFailed):
        _failed(transaction, issued, request.result)
    else:
        _succeeded(transaction, issued, request.result)


def _failed(
    transaction: Transaction, issued: IssuedCommand, result: commands.CommandFailed
) -> None:
    command = issued.order
    if isinstance(command, commands.Checkpoint):
        if (
            transaction.state.checkpoint is not None
            and transaction.state.checkpoint.number == command.number
        ):
            transaction.abandon_checkpoint(command.number, result.message)
    elif (reason := _FATAL.get(type(command))) is not None:
        transaction.fail(reason, f"{issued.member.name}: {result.message}")


def _succeeded(transaction: Transaction, issued: IssuedCommand, result: commands.Result) -> None:
    command = issued.order
    if isinstance(command, commands.Configure):
        transaction.record(member_entries.ShardConfigured(member=issued.member))
    elif isinstance(command, commands.Upload):
        _uploaded(transaction, issued)
    elif isinstance(command, commands.Export) and transaction.state.phase is Phase.EXPORTING:
        transaction.go_to(Phase.EVALUATING)
    elif isinstance(command, commands.LeaveWarmStart):
        transaction.record(batch_entries.WarmStartLeft(member=issued.member))
    else:
        _told(transaction, issued, result)


def _told(transaction: Transaction, issued: IssuedCommand, result: commands.Result) -> None:
    command = issued.order
    if isinstance(result, commands.Fenced):
        answer = member_entries.FenceAnswered(
            shard=issued.member.index, sender=result.sender, partial_chunks=result.partial_chunks
        )
        transaction.record(answer)
    elif isinstance(result, commands.ShardWritten) and isinstance(command, commands.Checkpoint):
        _written(transaction, issued.member, command.number, result)
    elif isinstance(result, commands.Evaluated) and isinstance(command, commands.Evaluate):
        _evaluated(transaction, command, result)
    elif isinstance(result, commands.Drained):
        transaction.record(member_entries.Drained(member=issued.member, progress=result.progress))


def _uploaded(transaction: Transaction, issued: IssuedCommand) -> None:
    for index, incarnation in issued.shards.items():
        member = MemberId(role=Role.SHARD, index=index, incarnation=incarnation)
        found = transaction.state.group(member)
        if found is not None and found.live:
            transaction.record(member_entries.ShardInitialised(member=member))


def _written(
    transaction: Transaction, holder: MemberId, number: int, part: commands.ShardWritten
) -> None:
    opened = transaction.state.checkpoint
    if opened is None or opened.number != number:
        return
    transaction.record(job_entries.ShardPartWritten(number=number, shard=holder.index, part=part))
    if len(opened.parts) == transaction.settings.holders:
        transaction.effects.append(
            CommitCheckpoint(
                number=number,
                parts=dict(opened.parts),
                update_rule=transaction.settings.update_rule,
            )
        )


def _kept(
    command: commands.Evaluate, result: commands.Evaluated, evaluation: Evaluation
) -> BestModel | None:
    if command.keep is None or not result.kept:
        return None
    value = command.keep.by.value_of(evaluation.measures, evaluation.loss)
    if value is None:
        return None
    return BestModel(name=command.keep.name, value=value, samples=evaluation.samples)


def _evaluated(
    transaction: Transaction, command: commands.Evaluate, result: commands.Evaluated
) -> None:
    state = transaction.state
    measures = result.means
    # Of the final model nothing is trained meanwhile.
    final = command.model_file is not None
    evaluation = Evaluation(
        epoch=state.data.epochs_done if final else state.evaluated_epoch,
        samples=state.samples if final else state.evaluating_samples,
        seconds=state.seconds(transaction.now),
        loss=result.loss,
        measures=measures,
        final=final,
    )
    stop = transaction.settings.stop
    improvement = stop_rules.improvement(stop.patience, state.improvement, evaluation)
    transaction.record(
        job_entries.EvaluationEnded(
            evaluation=evaluation,
            improvement=improvement,
            best_model=_kept(command, result, evaluation),
        )
    )
    wanted = stop_section.measures(stop, transaction.settings.evaluation)
    missing = stop_section.missing_measure(wanted, measures)
    if missing is not None and not evaluation.final:
        transaction.fail(FailureReason.EVALUATION_FAILED, missing)
