"""What members have to know: of each other, who holds what, how often they speak. Decides; no I/O.

One list for all members of a role, not a command for each pair: a shard learns which incarnations
of the replicas it serves, a replica where the shards listen.
"""

from dataclasses import replace

from disttrain.coordinator.decisions.transaction import Transaction
from disttrain.coordinator.journal import job_entries
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol.messages import (
    HeartbeatReply,
    Intervals,
    Placed,
    ShardAddress,
)
from disttrain.coordinator.settings import Settings
from disttrain.state.layout import ModelLayout
from disttrain.state.placement import Placement, place
from disttrain.transport.header import Role

_HEARTBEATS_PER_SECOND = 100.0
"""Of all members together: a few percent of a core."""
_REPEAT_SECONDS = 4.0
"""A coordinator that is started again is away for a second or two."""


def epoch_for(state: State, role: Role) -> int:
    """Of the members that a member of this role has to know."""
    return state.shards_epoch if role is Role.REPLICA else state.replicas_epoch


def of_members(transaction: Transaction, role: Role) -> HeartbeatReply:
    found = _always(transaction, role)
    if role is Role.SHARD:
        live = transaction.live.replicas()
        incarnations = {replica.index: replica.incarnation for replica in live}
        instances = {replica.index: replica.instances for replica in live}
        return replace(found, replicas=incarnations, instances=instances)
    addresses = (
        ShardAddress(index=shard.index, incarnation=shard.incarnation, address=shard.address)
        for shard in transaction.live.shards()
    )
    return replace(found, shards=tuple(addresses))


def since(transaction: Transaction, role: Role, epoch: int) -> HeartbeatReply:
    """The same for a member that has heard of this epoch: what it knows is left out."""
    found = _always(transaction, role)
    return found if found.epoch == epoch else of_members(transaction, role)


def intervals(settings: Settings, members: int) -> Intervals:
    """All members together are heard at a bounded rate, and nobody's silence looks like death."""
    longest = min(settings.member_timeout_seconds / 4, settings.lease_seconds / 2)
    wanted = max(settings.heartbeat_seconds, members / _HEARTBEATS_PER_SECOND)
    heartbeat = min(wanted, longest)
    return Intervals(
        heartbeat_seconds=heartbeat,
        repeat_seconds=min(max(_REPEAT_SECONDS, heartbeat), longest),
    )


def _always(transaction: Transaction, role: Role) -> HeartbeatReply:
    live, settings = transaction.live, transaction.settings
    shards = len(live.shards())
    # Each process is heard by itself, also while its group forms.
    processes = shards + settings.partitions * (len(live.everybody()) - shards)
    return HeartbeatReply(
        epoch=epoch_for(transaction.state, role),
        live_replicas=len(live.replicas()),
        phase=transaction.state.phase,
        intervals=intervals(settings, processes),
    )


def placement(transaction: Transaction) -> Placement | None:
    """The present table, made if need be; None before the model and the data are known.

    The first one of a run is made here, and the first with another number of holders, with other
    vectors to keep or divided otherwise than the run that this one resumes.
    """
    state, settings = transaction.state, transaction.settings
    present = state.placement
    if state.phase.ended:
        return present
    if state.layout is None or state.awaits_division(settings.partitions):
        return None
    if not state.data.samples:
        return present
    if present is None or not _fits(present, settings.holders, settings.kept):
        place_anew(transaction, state.layout)
    return state.placement


def place_anew(transaction: Transaction, layout: ModelLayout) -> None:
    """What is in this layout is held by a new table from now on."""
    settings, present = transaction.settings, transaction.state.placement
    epoch = 0 if present is None else present.epoch + 1
    made = place(layout, settings.holders, settings.kept, epoch)
    transaction.record(job_entries.Placed(placement=made))


def placed(transaction: Transaction) -> Placed | None:
    """What a holder goes by that restores; None: too early to tell, it asks again."""
    state = transaction.state
    known = placement(transaction)
    if known is None and state.layout is not None:
        return None
    return Placed(placement=known, layout=None if known is None else state.layout)


def _fits(present: Placement, holders: int, kept: tuple[str, ...]) -> bool:
    beside = tuple(
        vector.name
        for vector in present.vectors
        # In the other partitions they are the same.
        if not vector.is_of_a_model and not vector.partition
    )
    return len(present.holders) == holders and beside == kept
