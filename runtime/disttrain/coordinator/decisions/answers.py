"""What the answers to orders lead to. Decides; no I/O."""

from disttrain.coordinator.decisions.turn import CommitCheckpoint, Turn
from disttrain.coordinator.journal import batch_entries, job_entries, member_entries
from disttrain.coordinator.journal.state import Evaluation, IssuedOrder
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.protocol import messages, orders
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.transport.header import Role

_FATAL = {
    orders.Configure: messages.FailureReason.LAUNCH_FAILED,
    orders.Upload: messages.FailureReason.LAUNCH_FAILED,
    orders.Evaluate: messages.FailureReason.EVALUATION_FAILED,
    orders.Export: messages.FailureReason.EXPORT_FAILED,
}
"""Orders without which the job cannot go on."""


def order_done(turn: Turn, request: messages.OrderDone) -> None:
    """Closes the order and does what follows; an answer that came before changes nothing."""
    issued = turn.state.orders.get(request.order)
    if issued is None or issued.member != request.member:
        return
    turn.record(member_entries.OrderClosed(id=issued.id))
    if isinstance(issued.order, orders.Perform | orders.Decide | orders.RollBack):
        turn.strategy.answered(turn, issued, request.result)
    elif isinstance(request.result, orders.OrderFailed):
        _failed(turn, issued, request.result)
    else:
        _succeeded(turn, issued, request.result)


def _failed(turn: Turn, issued: IssuedOrder, result: orders.OrderFailed) -> None:
    order = issued.order
    if isinstance(order, orders.Checkpoint):
        if turn.state.checkpoint is not None and turn.state.checkpoint.number == order.number:
            turn.abandon_checkpoint(order.number, result.message)
    elif (reason := _FATAL.get(type(order))) is not None:
        turn.fail(reason, f"{issued.member.name}: {result.message}")


def _succeeded(turn: Turn, issued: IssuedOrder, result: orders.Result) -> None:
    order = issued.order
    if isinstance(order, orders.Configure):
        turn.record(member_entries.ShardConfigured(member=issued.member))
    elif isinstance(order, orders.Upload):
        _uploaded(turn, issued)
    elif isinstance(order, orders.Export) and turn.state.phase is Phase.EXPORTING:
        turn.go_to(Phase.EVALUATING)
    elif isinstance(order, orders.LeaveWarmStart):
        turn.record(batch_entries.WarmStartLeft(member=issued.member))
    else:
        _told(turn, issued, result)


def _told(turn: Turn, issued: IssuedOrder, result: orders.Result) -> None:
    order = issued.order
    if isinstance(result, orders.Fenced):
        answer = member_entries.FenceAnswered(
            shard=issued.member.index, sender=result.sender, partial_chunks=result.partial_chunks
        )
        turn.record(answer)
    elif isinstance(result, orders.ShardWritten) and isinstance(order, orders.Checkpoint):
        _written(turn, issued.member, order.number, result)
    elif isinstance(result, orders.Evaluated) and isinstance(order, orders.Evaluate):
        _evaluated(turn, order, result)
    elif isinstance(result, orders.Drained):
        turn.record(member_entries.Drained(member=issued.member, progress=result.progress))


def _uploaded(turn: Turn, issued: IssuedOrder) -> None:
    for index, incarnation in issued.shards.items():
        member = MemberId(role=Role.SHARD, index=index, incarnation=incarnation)
        found = turn.state.group(member)
        if found is not None and found.live:
            turn.record(member_entries.ShardInitialised(member=member))


def _written(turn: Turn, holder: MemberId, number: int, part: orders.ShardWritten) -> None:
    opened = turn.state.checkpoint
    if opened is None or opened.number != number:
        return
    turn.record(job_entries.ShardPartWritten(number=number, shard=holder.index, part=part))
    if len(opened.parts) == turn.settings.holders:
        turn.effects.append(
            CommitCheckpoint(
                number=number,
                parts=dict(opened.parts),
                update_rule=turn.settings.update_rule,
            )
        )


def _evaluated(turn: Turn, order: orders.Evaluate, result: orders.Evaluated) -> None:
    state = turn.state
    measures = {name: total / max(result.samples, 1) for name, total in result.sums.items()}
    # Of the final model nothing is trained meanwhile.
    final = order.model_file is not None
    evaluation = Evaluation(
        epoch=state.data.epochs_done if final else state.evaluated_epoch,
        samples=state.samples if final else state.evaluating_samples,
        seconds=state.seconds(turn.now),
        loss=result.loss,
        measures=measures,
        final=final,
    )
    turn.record(job_entries.EvaluationEnded(evaluation=evaluation))
    target = turn.settings.stop.target_metric
    if target is not None and target.name not in measures and not evaluation.final:
        known = ", ".join(sorted(measures)) or "nothing"
        message = (
            f"spec.stop.targetMetric.name is {target.name!r}, and Task.measure() measures {known}: "
            "name one of its measures, else the target is never met"
        )
        turn.fail(messages.FailureReason.EVALUATION_FAILED, message)
