"""How shards and the run of a batch method go back to one snapshot after a shard was lost.

Decides; no I/O.
"""

from disttrain.coordinator.decisions.transaction import Transaction
from disttrain.coordinator.journal import batch_entries, member_entries
from disttrain.coordinator.journal.batch_state import Batch
from disttrain.coordinator.journal.state import IssuedCommand
from disttrain.coordinator.phases import FailureReason, Phase
from disttrain.coordinator.protocol import commands
from disttrain.job.roles import Durability


def incarnations(transaction: Transaction) -> tuple[int, ...]:
    """Incarnations of the living shards, by index."""
    return tuple(shard.incarnation for shard in transaction.live.shards())


def are_together(transaction: Transaction, batch: Batch) -> bool:
    """Whether the shards, which are all ready, are where the run is; if not, they will be."""
    if not batch.returning and incarnations(transaction) == batch.incarnations:
        return True
    if batch.cut_number is None:
        return _are_at_the_beginning(transaction)
    if not batch.returning:
        begin(transaction, "a shard has a new incarnation")
    away = [
        shard
        for shard in transaction.live.shards()
        if batch.returned.get(shard.index) != shard.incarnation
    ]
    transaction.tell(away, commands.RollBack(checkpoint=batch.cut_number))
    if away:
        return False
    transaction.record(batch_entries.RunRolledBack(shards=incarnations(transaction)))
    return True


def begin(transaction: Transaction, reason: str) -> None:
    transaction.record(batch_entries.RollbackBegun(reason=reason))
    _withdraw(transaction, commands.Perform, commands.Decide)
    shard_lost(transaction)


def shard_lost(transaction: Transaction) -> None:
    """Whoever measures the shards' values now may read those of two points: it is done again.

    A shard's next incarnation serves no values before the coordinator knows that the last one is
    over.
    """
    for issued in (
        transaction.commands.of_kind(commands.Evaluate)
        if transaction.state.batch is not None
        else ()
    ):
        if isinstance(issued.order, commands.Evaluate) and issued.order.model_file is None:
            transaction.record(member_entries.CommandClosed(id=issued.id))


def rolled_back(transaction: Transaction, issued: IssuedCommand) -> None:
    batch = transaction.state.batch
    if batch is None or not isinstance(issued.order, commands.RollBack):
        return
    if batch.returning and issued.order.checkpoint == batch.cut_number:
        transaction.record(batch_entries.ShardRolledBack(member=issued.member))


def failed(transaction: Transaction, issued: IssuedCommand, result: commands.CommandFailed) -> None:
    batch, name = transaction.state.batch, issued.member.name
    if batch is None:
        transaction.fail(FailureReason.CHECKPOINT_FAILED, f"{name}: {result.message}")
    elif isinstance(issued.order, commands.RollBack):
        _not_rolled_back(transaction, batch, f"{name}: {result.message}", result.why)
    elif result.why is not commands.WhyFailed.OUT_OF_STEP or batch.cut_number is None:
        transaction.fail(FailureReason.SHARD_LOST, f"{name}: {result.message}")
    elif not batch.returning:
        begin(transaction, f"{name}: {result.message}")


def _not_rolled_back(
    transaction: Transaction, batch: Batch, message: str, why: commands.WhyFailed
) -> None:
    if why is not commands.WhyFailed.DAMAGED:
        transaction.fail(FailureReason.CHECKPOINT_FAILED, message)
    elif not batch.earlier:
        transaction.fail(FailureReason.CHECKPOINT_DAMAGED, message)
    else:
        transaction.record(batch_entries.SnapshotDamaged(reason=message))
        _withdraw(transaction, commands.RollBack)


def _withdraw(
    transaction: Transaction, *kinds: type[commands.Perform | commands.Decide | commands.RollBack]
) -> None:
    for kind in kinds:
        for issued in transaction.commands.of_kind(kind):
            transaction.record(member_entries.CommandClosed(id=issued.id))


def watch_the_end(transaction: Transaction) -> None:
    """A job that closes and has lost a shard goes on from the snapshot; see `are_together`."""
    batch = transaction.state.batch
    closing = transaction.state.phase in {Phase.DRAINING, Phase.CHECKPOINTING}
    if batch is None or not closing or not transaction.holders_ready():
        return
    if batch.returning or incarnations(transaction) != batch.incarnations:
        transaction.go_to(Phase.RUNNING)


def _are_at_the_beginning(transaction: Transaction) -> bool:
    """No command is given before there is a checkpoint, if there will be any."""
    if transaction.settings.durability is Durability.NONE:
        message = "a shard was lost and durability is none: nobody else has its vectors"
        transaction.fail(FailureReason.SHARD_LOST, message)
        return False
    transaction.record(batch_entries.RunRolledBack(shards=incarnations(transaction)))
    return True
