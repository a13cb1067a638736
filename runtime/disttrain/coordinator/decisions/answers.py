"""What the answers to orders lead to. Decides; no I/O."""

from disttrain.coordinator.decisions.turn import CommitCheckpoint, Turn
from disttrain.coordinator.journal import batch_entries, job_entries, member_entries
from disttrain.coordinator.journal.state import Evaluation, IssuedOrder
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.messages import FailureReason, OrderDone
from disttrain.coordinator.protocol.orders import (
    Checkpoint,
    Configure,
    Decide,
    Drained,
    Evaluate,
    Evaluated,
    Export,
    Fenced,
    LeaveWarmStart,
    OrderFailed,
    Perform,
    Result,
    ReturnTo,
    ShardWritten,
    Upload,
)
from disttrain.transport.header import Role

_FATAL = {
    Configure: FailureReason.LAUNCH_FAILED,
    Upload: FailureReason.LAUNCH_FAILED,
    Evaluate: FailureReason.EVALUATION_FAILED,
    Export: FailureReason.EXPORT_FAILED,
}
"""Orders without which the job cannot go on."""


def order_done(turn: Turn, request: OrderDone) -> None:
    """Closes the order and does what follows; an answer that came before changes nothing."""
    issued = turn.state.orders.get(request.order)
    if issued is None or issued.member != request.member:
        return
    turn.record(member_entries.OrderClosed(id=issued.id))
    if isinstance(issued.order, Perform | Decide | ReturnTo):
        turn.strategy.answered(turn, issued, request.result)
    elif isinstance(request.result, OrderFailed):
        _failed(turn, issued, request.result)
    else:
        _succeeded(turn, issued, request.result)


def _failed(turn: Turn, issued: IssuedOrder, result: OrderFailed) -> None:
    order = issued.order
    if isinstance(order, Checkpoint):
        if turn.state.checkpoint is not None and turn.state.checkpoint.number == order.number:
            turn.abandon_checkpoint(order.number, result.message)
    elif (reason := _FATAL.get(type(order))) is not None:
        turn.fail(reason, f"{issued.member.name}: {result.message}")


def _succeeded(turn: Turn, issued: IssuedOrder, result: Result) -> None:
    order = issued.order
    if isinstance(order, Configure):
        turn.record(member_entries.ShardConfigured(member=issued.member))
    elif isinstance(order, Upload):
        _uploaded(turn, issued)
    elif isinstance(order, Export) and turn.state.phase is Phase.EXPORTING:
        turn.go_to(Phase.EVALUATING)
    elif isinstance(order, LeaveWarmStart):
        turn.record(batch_entries.WarmStartLeft(member=issued.member))
    else:
        _told(turn, issued, result)


def _told(turn: Turn, issued: IssuedOrder, result: Result) -> None:
    order = issued.order
    if isinstance(result, Fenced):
        _fenced(turn, issued.member, result)
    elif isinstance(result, ShardWritten) and isinstance(order, Checkpoint):
        _written(turn, issued.member, order.number, result)
    elif isinstance(result, Evaluated) and isinstance(order, Evaluate):
        _evaluated(turn, order, result)
    elif isinstance(result, Drained):
        turn.record(member_entries.Drained(member=issued.member, progress=result.progress))


def _uploaded(turn: Turn, issued: IssuedOrder) -> None:
    for index, incarnation in issued.shards.items():
        member = MemberId(role=Role.SHARD, index=index, incarnation=incarnation)
        found = turn.state.life(member)
        if found is not None and found.live:
            turn.record(member_entries.ShardInitialised(member=member))


def _fenced(turn: Turn, shard: MemberId, result: Fenced) -> None:
    answer = member_entries.FenceAnswered(
        shard=shard.index, sender=result.sender, partial_chunks=result.partial_chunks
    )
    turn.record(answer)


def _written(turn: Turn, holder: MemberId, number: int, part: ShardWritten) -> None:
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


def _evaluated(turn: Turn, order: Evaluate, result: Evaluated) -> None:
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
        turn.fail(FailureReason.EVALUATION_FAILED, message)
