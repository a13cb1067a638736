"""Whether a request is from whom it says, by the sender's certificate. Decides; no I/O."""

from collections.abc import Iterable

from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol import messages, notices
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.job import identity
from disttrain.job.identity import Identity, Speaker


def impostor(state: State, sender: Identity | None, request: messages.Request) -> str:
    """Why a sender may not say this in somebody's name; empty if it may.

    None is a sender without a certificate, as where nothing is encrypted: the role is all that is
    known of it.
    """
    if sender is None:
        return ""
    if isinstance(request, messages.Join):
        return _joining(state, sender, request)
    if isinstance(request, messages.Status) and sender.place in state.removed:
        # Whatever else it says is refused as of a member that is none any more.
        return f"{sender} was {notices.REMOVED}"
    member = getattr(request, "member", None)
    if not isinstance(member, MemberId):
        return ""
    group = state.group(member)
    process = None if group is None else group.processes.get(member.partition)
    speaker = Speaker(
        member.role.name.lower(),
        member.index,
        member.partition,
        instance=None if process is None else process.instance,
    )
    return identity.mismatch(sender, speaker)


def _joining(state: State, sender: Identity, join: messages.Join) -> str:
    role = join.role.name.lower()
    speaker = Speaker(role, join.index, join.partition, join.instance, join.place)
    if why := identity.mismatch(sender, speaker):
        return why
    if sender.group is not None or not sender.instance:
        return ""
    if join.index is not None:
        # Else it would take the place of whoever has that index.
        return f"the coordinator names {sender}, which asks to be {speaker}"
    if sender.place or sender.instance == identity.LOOPS:
        return ""
    return _wrong_place(state.groups(join.role).values(), sender, join)


def _wrong_place(groups: Iterable[Group], sender: Identity, join: messages.Join) -> str:
    """A pod has one place and is one member: who joins from there ends who was there.

    For certificates of older versions, which do not say where their pods are: by those that live.
    """
    for group in groups:
        is_same_pod = identity.pod_of(group.instance) == identity.pod_of(sender.instance)
        is_same_place = bool(join.place) and group.place == join.place
        if group.live and is_same_pod != is_same_place:
            return f"{sender} is not at the place of {group.name}, {group.place or 'nowhere'}"
    return ""
