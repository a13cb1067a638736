"""Who is part of the job: groups and their incarnations, fencing, silence. Decides; no I/O."""

from disttrain.coordinator.decisions.turn import Turn
from disttrain.coordinator.journal import member_entries
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.phases import LifeState, Phase
from disttrain.coordinator.protocol import messages, orders
from disttrain.coordinator.protocol.fields import (
    LostUpdates,
    MemberId,
    Position,
    Progress,
    SenderPosition,
    name_of,
)
from disttrain.job.roles import Durability
from disttrain.transport.header import Role

_LOOK_FRACTION = 0.02
"""Of the shortest silence that matters: so often everybody's is looked at."""
_MEMBERS = frozenset({Role.REPLICA, Role.SHARD})


def heard(turn: Turn, member: MemberId) -> messages.Refused | None:
    """Why a member's request is refused; None for a living one, whose sign of life this is."""
    refusal = admission(turn, member)
    if refusal is None:
        turn.watch.hear(member, turn.now)
    return refusal


def admission(turn: Turn, member: MemberId) -> messages.Refused | None:
    """Why a member is refused; None for a living one."""
    found = turn.state.group(member) if member.role in _MEMBERS else None
    if found is not None and found.live and found.has_joined(member):
        return None
    name = member.name
    is_of_present = found is not None and found.live
    if is_of_present or member.incarnation > turn.state.incarnations.get(member.group, 0):
        message = f"{name} incarnation {member.incarnation} never joined; join first"
        return messages.Refused(reason=messages.RefusalReason.UNKNOWN_MEMBER, message=message)
    why = found.reason if found is not None else "a newer life has joined"
    message = f"{name} incarnation {member.incarnation} is no member any more: {why}"
    return messages.Refused(reason=messages.RefusalReason.OLD_INCARNATION, message=message)


def next_incarnation(turn: Turn, role: Role, index: int) -> int:
    known = turn.state.incarnations.get(name_of(role, index), 0)
    return max(known, turn.state.first_incarnation) + 1


def lose(turn: Turn, found: Group, state: LifeState, reason: str) -> None:
    """A group's incarnation has ended: nothing more is taken from it, its work goes to others."""
    if not found.live:
        return
    member = found.member
    trained = turn.state.began is not None and member.role is Role.REPLICA
    asked = state is LifeState.DEAD and trained
    lost = member_entries.MemberLost(
        member=member,
        state=state,
        reason=reason,
        shards=tuple(range(turn.settings.shards)) if asked else (),
        replica=turn.watch.replicas.get(member),
        shard=turn.watch.shards.get(member),
    )
    turn.record(lost)
    for each in found.members:
        turn.watch.forget(each)
    if member.role is Role.REPLICA:
        _fence(turn, member)
    else:
        turn.strategy.shard_lost(turn)
    if turn.settings.is_holder(member.role, member.index):
        _holder_lost(turn, found, reason)


def leave(turn: Turn, request: messages.Leave) -> None:
    """A member ends by its own will, and with it its group; where a replica ended is known."""
    found = turn.state.group(request.member)
    if found is None or not found.live:
        return
    speaks = request.member.role is Role.REPLICA and not request.member.partition
    if request.progress is not None and speaks:
        turn.record(member_entries.Drained(member=request.member, progress=request.progress))
        lose(turn, found, LifeState.LEFT, request.reason)
    else:
        lose(turn, found, LifeState.LEFT if request.saved else LifeState.DEAD, request.reason)


def died(turn: Turn, request: messages.MemberDied) -> None:
    name, partition = name_of(request.role, request.index), request.partition
    found = turn.state.groups(request.role).get(request.index) if request.role in _MEMBERS else None
    if found is not None:
        name = found.process_name(partition)
    what = f"{name} (pid {request.pid}) ended with code {request.exit_code} {request.reason}"
    if found is not None and found.is_process(partition, request.pid):
        lose(turn, found, LifeState.DEAD, what.strip())
    if not request.final:
        return
    if request.role is Role.SHARD and turn.settings.durability is Durability.NONE:
        message = f"{what.strip()}; durability is none{_what_is_left(turn)} {request.log_tail}"
        turn.fail(messages.FailureReason.SHARD_LOST, message.strip())
    message = f"{what.strip()}; its restart budget is spent. {request.log_tail}"
    turn.fail(messages.FailureReason.TOO_MANY_RESTARTS, message.strip())


def check_silence(turn: Turn) -> None:
    """Takes leases from silent replicas, and declares the silent dead after longer."""
    settings = turn.settings
    patience = settings.member_timeout_seconds
    if not turn.watch.may_look(settings.lease_seconds * _LOOK_FRACTION, turn.now):
        return
    for found in turn.live.everybody():
        silence, who = _longest_silence(turn, found)
        draining = turn.state.phase is Phase.DRAINING and found.role is Role.REPLICA
        if silence >= (settings.lease_seconds if draining else patience):
            lose(turn, found, LifeState.DEAD, f"{who}silent for {silence:.1f} s")
        elif silence >= settings.lease_seconds and found.role is Role.REPLICA:
            _expire(turn, found.member)


def _longest_silence(turn: Turn, found: Group) -> tuple[float, str]:
    """Of a group's members; the words say whose it is, where there are several."""
    silence, partition = max(
        (turn.watch.silence(member, turn.now), member.partition) for member in found.members
    )
    who = f"{found.process_name(partition)} was " if found.partitions > 1 else ""
    return silence, who


def lost_leases(turn: Turn, member: MemberId) -> tuple[int, ...]:
    """Leases that a replica may still think it has."""
    return tuple(held.lease.id for held in turn.state.data.held(member) if held.lost)


def take_progress(turn: Turn, member: MemberId, progress: Progress, non_finite: int) -> None:
    found = turn.state.group(member)
    if found is None or not found.live or found.drained:
        return
    if _is_older(progress, found.progress):
        # A heartbeat that was repeated, and arrived after one that was made later.
        progress = found.progress
    if progress != found.progress or non_finite > found.non_finite:
        entry = member_entries.Progressed(member=member, progress=progress, non_finite=non_finite)
        turn.record(entry)


def take_losses(turn: Turn, shard: MemberId, losses: tuple[LostUpdates, ...]) -> None:
    """Journals what a shard has counted as lost and holds again, if it is new."""
    for sender in losses:
        if sender.lost != turn.state.totals.lost_by(shard.index, sender):
            turn.record(member_entries.LossCorrected(shard=shard.index, sender=sender))


def answer_fences(turn: Turn, shard: int, restored: messages.Restored | None) -> None:
    """A shard's new life answers at once for the dead it is still asked about."""
    senders = () if restored is None else restored.senders
    known = {(one.sender.index, one.sender.incarnation): one.sender for one in senders}
    for fencing in list(turn.state.fencings):
        if shard not in fencing.waiting:
            continue
        key = (fencing.index, fencing.incarnation)
        nothing = SenderPosition(index=key[0], incarnation=key[1], position=Position())
        answer = member_entries.FenceAnswered(
            shard=shard, sender=known.get(key, nothing), partial_chunks=0
        )
        turn.record(answer)


def _is_older(one: Progress, other: Progress) -> bool:
    return (one.samples, one.position) < (other.samples, other.position)


def _expire(turn: Turn, member: MemberId) -> None:
    if turn.strategy.has_work(turn, member):
        turn.record(member_entries.LeasesExpired(member=member))


def _fence(turn: Turn, replica: MemberId) -> None:
    if turn.state.phase.ended:
        # Shards that were told to end answer nothing more, and would be waited for.
        return
    live_replicas = len(turn.live.replicas())
    for shard in turn.live.shards():
        order = orders.Fence(
            index=replica.index, incarnation=replica.incarnation, live_replicas=live_replicas
        )
        turn.issue(shard.member, order)


def _holder_lost(turn: Turn, holder: Group, reason: str) -> None:
    name = holder.member.name
    if turn.state.checkpoint is not None:
        turn.abandon_checkpoint(turn.state.checkpoint.number, f"{name} died: {reason}")
    trained = turn.state.began is not None and not turn.state.phase.ended
    is_dead = holder.state is LifeState.DEAD
    if trained and is_dead and turn.settings.durability is Durability.NONE:
        message = f"{name} died and durability is none: {reason}"
        turn.fail(messages.FailureReason.SHARD_LOST, f"{message}{_what_is_left(turn)}")


def _what_is_left(turn: Turn) -> str:
    """The remedy: without durability there is a checkpoint only from an end that was begun."""
    number = turn.state.last_checkpoint
    if number is None:
        return "; nothing of it is on disk: durability checkpoint would survive this."
    return (
        f"; the last checkpoint is {turn.places.checkpoint(number)}: go on with `disttrain resume`,"
        " or take the model with `disttrain export`."
    )
