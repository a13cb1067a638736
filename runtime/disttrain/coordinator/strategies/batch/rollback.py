"""How shards and the run of a batch method go back to one snapshot after a shard was lost.

Decides; no I/O.
"""

from disttrain.coordinator.decisions.turn import Turn
from disttrain.coordinator.journal import batch_entries, member_entries
from disttrain.coordinator.journal.batch_state import Batch
from disttrain.coordinator.journal.state import IssuedOrder
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.protocol import messages, orders
from disttrain.job.roles import Durability


def lives(turn: Turn) -> tuple[int, ...]:
    """Incarnations of the living shards, by index."""
    return tuple(shard.incarnation for shard in turn.live.shards())


def are_together(turn: Turn, batch: Batch) -> bool:
    """Whether the shards, which are all ready, are where the run is; if not, they will be."""
    if not batch.returning and lives(turn) == batch.lives:
        return True
    if batch.cut_number is None:
        return _are_at_the_beginning(turn)
    if not batch.returning:
        begin(turn, "a shard has a new life")
    away = [
        shard
        for shard in turn.live.shards()
        if batch.returned.get(shard.index) != shard.incarnation
    ]
    turn.tell(away, orders.RollBack(checkpoint=batch.cut_number))
    if away:
        return False
    turn.record(batch_entries.RunRolledBack(shards=lives(turn)))
    return True


def begin(turn: Turn, reason: str) -> None:
    turn.record(batch_entries.RollbackBegun(reason=reason))
    _withdraw(turn, orders.Perform, orders.Decide)
    shard_lost(turn)


def shard_lost(turn: Turn) -> None:
    """Whoever measures the shards' values now may read those of two points: it is done again.

    A shard's next life serves no values before the coordinator knows that the last one is over.
    """
    for issued in turn.orders.of_kind(orders.Evaluate) if turn.state.batch is not None else ():
        if isinstance(issued.order, orders.Evaluate) and issued.order.model_file is None:
            turn.record(member_entries.OrderClosed(id=issued.id))


def rolled_back(turn: Turn, issued: IssuedOrder) -> None:
    batch = turn.state.batch
    if batch is None or not isinstance(issued.order, orders.RollBack):
        return
    if batch.returning and issued.order.checkpoint == batch.cut_number:
        turn.record(batch_entries.ShardRolledBack(member=issued.member))


def failed(turn: Turn, issued: IssuedOrder, result: orders.OrderFailed) -> None:
    batch, name = turn.state.batch, issued.member.name
    if batch is None:
        turn.fail(messages.FailureReason.CHECKPOINT_FAILED, f"{name}: {result.message}")
    elif isinstance(issued.order, orders.RollBack):
        _not_rolled_back(turn, batch, f"{name}: {result.message}", result.why)
    elif result.why is not orders.WhyFailed.OUT_OF_STEP or batch.cut_number is None:
        turn.fail(messages.FailureReason.SHARD_LOST, f"{name}: {result.message}")
    elif not batch.returning:
        begin(turn, f"{name}: {result.message}")


def _not_rolled_back(turn: Turn, batch: Batch, message: str, why: orders.WhyFailed) -> None:
    if why is not orders.WhyFailed.DAMAGED:
        turn.fail(messages.FailureReason.CHECKPOINT_FAILED, message)
    elif not batch.earlier:
        turn.fail(messages.FailureReason.CHECKPOINT_DAMAGED, message)
    else:
        turn.record(batch_entries.SnapshotDamaged(reason=message))
        _withdraw(turn, orders.RollBack)


def _withdraw(turn: Turn, *kinds: type[orders.Perform | orders.Decide | orders.RollBack]) -> None:
    for kind in kinds:
        for issued in turn.orders.of_kind(kind):
            turn.record(member_entries.OrderClosed(id=issued.id))


def watch_the_end(turn: Turn) -> None:
    """A job that closes and has lost a shard goes on from the snapshot; see `are_together`."""
    batch = turn.state.batch
    closing = turn.state.phase in {Phase.DRAINING, Phase.CHECKPOINTING}
    if batch is None or not closing or not turn.holders_ready():
        return
    if batch.returning or lives(turn) != batch.lives:
        turn.go_to(Phase.RUNNING)


def _are_at_the_beginning(turn: Turn) -> bool:
    """No order is given before there is a checkpoint, if there will be any."""
    if turn.settings.durability is Durability.NONE:
        message = "a shard was lost and durability is none: nobody else has its vectors"
        turn.fail(messages.FailureReason.SHARD_LOST, message)
        return False
    turn.record(batch_entries.RunRolledBack(shards=lives(turn)))
    return True
