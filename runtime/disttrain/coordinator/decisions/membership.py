"""Who is part of the job: groups and their incarnations, fencing, silence. Decides; no I/O."""

from disttrain.coordinator.decisions.transaction import Transaction
from disttrain.coordinator.journal import member_entries
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.phases import FailureReason, IncarnationState, Phase
from disttrain.coordinator.protocol import commands, fields, messages, notices
from disttrain.coordinator.protocol.fields import (
    LostUpdates,
    MemberId,
    Position,
    Progress,
    SenderPosition,
    name_of,
)
from disttrain.job import identity
from disttrain.job.roles import Durability
from disttrain.launch.exit_code import ExitCode
from disttrain.transport.header import Role

_LOOK_FRACTION = 0.02
"""Of the shortest silence that matters: so often everybody's is looked at."""
_MEMBERS = frozenset({Role.REPLICA, Role.SHARD})


def heard(transaction: Transaction, member: MemberId) -> messages.Refused | None:
    """Why a member's request is refused; None for a living one, whose sign of life this is."""
    refusal = admission(transaction, member)
    if refusal is None:
        transaction.watch.hear(member, transaction.now)
    return refusal


def admission(transaction: Transaction, member: MemberId) -> messages.Refused | None:
    """Why a member is refused; None for a living one."""
    found = transaction.state.group(member) if member.role in _MEMBERS else None
    if found is not None and found.live and found.has_joined(member):
        return None
    name = member.name
    is_of_present = found is not None and found.live
    if is_of_present or member.incarnation > transaction.state.incarnations.get(member.group, 0):
        message = f"{name} incarnation {member.incarnation} never joined; join first"
        return messages.Refused(reason=messages.RefusalReason.UNKNOWN_MEMBER, message=message)
    why = found.reason if found is not None else "a newer incarnation has joined"
    message = f"{name} incarnation {member.incarnation} is no member any more: {why}"
    is_removed = found is not None and found.place in transaction.state.removed
    reason = (
        messages.RefusalReason.REMOVED if is_removed else messages.RefusalReason.OLD_INCARNATION
    )
    return messages.Refused(reason=reason, message=message)


def next_incarnation(transaction: Transaction, role: Role, index: int) -> int:
    known = transaction.state.incarnations.get(name_of(role, index), 0)
    return max(known, transaction.state.first_incarnation) + 1


def lose(transaction: Transaction, found: Group, state: IncarnationState, reason: str) -> None:
    """A group's incarnation has ended: nothing more is taken from it, its work goes to others."""
    if not found.live:
        return
    member = found.member
    trained = transaction.state.began is not None and member.role is Role.REPLICA
    asked = state is IncarnationState.DEAD and trained
    lost = member_entries.MemberLost(
        member=member,
        state=state,
        reason=reason,
        shards=tuple(range(transaction.settings.shards)) if asked else (),
        replica=transaction.watch.replicas.get(member),
        shard=transaction.watch.shards.get(member),
    )
    transaction.record(lost)
    for each in found.members:
        transaction.watch.forget(each)
    if member.role is Role.REPLICA:
        _fence(transaction, member)
    else:
        transaction.strategy.shard_lost(transaction)
    if transaction.settings.is_holder(member.role, member.index):
        _holder_lost(transaction, found, reason)


def fail(transaction: Transaction, found: Group, reason: str) -> None:
    """A group's incarnation has ended by no decision: the next one may have to wait.

    It ended when one of its members was heard for the last time, or later.
    """
    if found.live and not found.own_data:
        heard, now = transaction.watch.heard, transaction.now
        ended = min((heard.get(member, now) for member in found.members), default=now)
        transaction.failures.note(found, ended, transaction.settings.restart_backoff)
    lose(transaction, found, IncarnationState.DEAD, reason)


def leave(transaction: Transaction, request: messages.Leave) -> None:
    """A member ends by its own will, and with it its group; where a replica ended is known."""
    found = transaction.state.group(request.member)
    if found is None or not found.live:
        return
    speaks = request.member.role is Role.REPLICA and not request.member.partition
    if request.progress is not None and speaks:
        transaction.record(member_entries.Drained(member=request.member, progress=request.progress))
        lose(transaction, found, IncarnationState.LEFT, request.reason)
    else:
        lose(
            transaction,
            found,
            IncarnationState.LEFT if request.saved else IncarnationState.DEAD,
            request.reason,
        )


def remove(transaction: Transaction, request: notices.Remove) -> None:
    """A joiner is no member any more, and never again. The job's own replicas stay."""
    state, place = transaction.state, request.place
    if not identity.is_joiner(place) or place in state.removed:
        return
    transaction.record(member_entries.JoinerRemoved(place=place))
    for found in [one for one in state.replicas.values() if one.place == place]:
        lose(transaction, found, IncarnationState.DEAD, notices.REMOVED)


def died(transaction: Transaction, request: messages.MemberDied) -> None:
    name, partition = name_of(request.role, request.index), request.partition
    found = (
        transaction.state.groups(request.role).get(request.index)
        if request.role in _MEMBERS
        else None
    )
    if found is not None:
        name = found.process_name(partition)
    what = f"{name} (pid {request.pid}) ended with code {request.exit_code} {request.reason}"
    if found is not None and found.is_process(partition, request.pid):
        if request.exit_code == ExitCode.RESTART:
            lose(transaction, found, IncarnationState.DEAD, what.strip())
        else:
            fail(transaction, found, what.strip())
    if not request.final:
        return
    if request.role is Role.SHARD and transaction.settings.durability is Durability.NONE:
        message = (
            f"{what.strip()}; durability is none{_what_is_left(transaction)} {request.log_tail}"
        )
        transaction.fail(FailureReason.SHARD_LOST, message.strip())
    message = f"{what.strip()}; its restart budget is spent. {request.log_tail}"
    transaction.fail(FailureReason.TOO_MANY_RESTARTS, message.strip())


def check_silence(transaction: Transaction) -> None:
    """Takes leases from silent replicas, and declares the silent dead after longer."""
    settings = transaction.settings
    patience = settings.member_timeout_seconds
    if not transaction.watch.may_look(settings.lease_seconds * _LOOK_FRACTION, transaction.now):
        return
    for found in transaction.live.everybody():
        silence, who = _longest_silence(transaction, found)
        draining = transaction.state.phase is Phase.DRAINING and found.role is Role.REPLICA
        if silence >= (settings.lease_seconds if draining else patience):
            fail(transaction, found, f"{who}silent for {silence:.1f} s")
        elif silence >= settings.lease_seconds and found.role is Role.REPLICA:
            _expire(transaction, found.member)


def _longest_silence(transaction: Transaction, found: Group) -> tuple[float, str]:
    """Of a group's members; the words say whose it is, where there are several."""
    silence, partition = max(
        (transaction.watch.silence(member, transaction.now), member.partition)
        for member in found.members
    )
    who = f"{found.process_name(partition)} was " if found.partitions > 1 else ""
    return silence, who


def lost_leases(transaction: Transaction, member: MemberId) -> tuple[int, ...]:
    """Leases that a replica may still think it has."""
    return tuple(held.lease.id for held in transaction.state.data.held(member) if held.lost)


def take_progress(
    transaction: Transaction, member: MemberId, progress: Progress, non_finite: int
) -> None:
    found = transaction.state.group(member)
    if found is None or not found.live or found.drained:
        return
    if _is_older(progress, found.progress):
        # A heartbeat that was repeated, and arrived after one that was made later.
        progress = found.progress
    if progress != found.progress or non_finite > found.non_finite:
        entry = member_entries.Progressed(member=member, progress=progress, non_finite=non_finite)
        transaction.record(entry)


def take_losses(transaction: Transaction, shard: MemberId, losses: tuple[LostUpdates, ...]) -> None:
    """Journals what a shard has counted as lost and holds again, if it is new."""
    for sender in losses:
        if sender.lost != transaction.state.totals.lost_by(shard.index, sender):
            transaction.record(member_entries.LossCorrected(shard=shard.index, sender=sender))


def answer_fences(transaction: Transaction, shard: int, restored: fields.Restored | None) -> None:
    """A shard's new incarnation answers at once for the dead it is still asked about."""
    senders = () if restored is None else restored.senders
    known = {(one.sender.index, one.sender.incarnation): one.sender for one in senders}
    for fencing in list(transaction.state.fencings):
        if shard not in fencing.waiting:
            continue
        key = (fencing.index, fencing.incarnation)
        nothing = SenderPosition(index=key[0], incarnation=key[1], position=Position())
        answer = member_entries.FenceAnswered(
            shard=shard, sender=known.get(key, nothing), partial_chunks=0
        )
        transaction.record(answer)


def _is_older(one: Progress, other: Progress) -> bool:
    return (one.samples, one.position) < (other.samples, other.position)


def _expire(transaction: Transaction, member: MemberId) -> None:
    if transaction.strategy.has_work(transaction, member):
        transaction.record(member_entries.LeasesExpired(member=member))


def _fence(transaction: Transaction, replica: MemberId) -> None:
    if transaction.state.phase.ended:
        # Shards that were told to end answer nothing more, and would be waited for.
        return
    live_replicas = len(transaction.live.replicas())
    for shard in transaction.live.shards():
        command = commands.Fence(
            index=replica.index, incarnation=replica.incarnation, live_replicas=live_replicas
        )
        transaction.issue(shard.member, command)


def _holder_lost(transaction: Transaction, holder: Group, reason: str) -> None:
    name = holder.member.name
    if transaction.state.checkpoint is not None:
        transaction.abandon_checkpoint(
            transaction.state.checkpoint.number, f"{name} died: {reason}"
        )
    trained = transaction.state.began is not None and not transaction.state.phase.ended
    is_dead = holder.state is IncarnationState.DEAD
    if trained and is_dead and transaction.settings.durability is Durability.NONE:
        message = f"{name} died and durability is none: {reason}"
        transaction.fail(FailureReason.SHARD_LOST, f"{message}{_what_is_left(transaction)}")


def _what_is_left(transaction: Transaction) -> str:
    """The remedy: without durability there is a checkpoint only from an end that was begun."""
    number = transaction.state.last_checkpoint
    if number is None:
        return "; nothing of it is on disk: durability checkpoint would survive this."
    return (
        f"; the last checkpoint is {transaction.places.checkpoint(number)}: "
        "go on with `disttrain resume`, or take the model with `disttrain export`."
    )
