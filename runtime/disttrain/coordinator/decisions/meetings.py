"""What the members of groups tell each other while they form. Decides; no I/O.

Kept in memory only, and for the present incarnation of a group alone, until that has formed: then
it has no use for it.
"""

from dataclasses import dataclass, field

from disttrain.coordinator.decisions.transaction import Transaction
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.transport.header import Role

_KEYS_PER_MEMBER = 16
"""gloo gives one of each member."""


@dataclass(slots=True)
class _Meeting:
    incarnation: int
    values: dict[str, str] = field(default_factory=dict)


class Meetings:
    """Those of all groups."""

    def __init__(self) -> None:
        self._found: dict[tuple[Role, int], _Meeting] = {}

    def meet(
        self, transaction: Transaction, request: messages.Meet
    ) -> messages.Met | messages.Refused:
        """For a member of a living group."""
        group = transaction.state.group(request.member)
        if group is None or group.partitions == 1:
            return _refused(f"{request.member.name} is alone, and meets nobody")
        key = request.member.role, request.member.index
        meeting = self._found.get(key)
        if meeting is None or meeting.incarnation != group.incarnation:
            self._forget_the_dead(transaction.state)
            meeting = self._found[key] = _Meeting(group.incarnation)
        most = _KEYS_PER_MEMBER * group.partitions
        if len(meeting.values.keys() | request.put.keys()) > most:
            return _refused(f"a group of {group.partitions} may give at most {most} values")
        meeting.values |= request.put
        found = {key: meeting.values[key] for key in request.wanted if key in meeting.values}
        return messages.Met(coordinator=transaction.state.incarnation, values=found)

    def formed(self, member: MemberId) -> None:
        """All members of this one's group have met; may be told again and again."""
        self._found.pop((member.role, member.index), None)

    def _forget_the_dead(self, state: State) -> None:
        for role, index in list(self._found):
            group = state.groups(role).get(index)
            if group is None or not group.live:
                del self._found[role, index]


def _refused(message: str) -> messages.Refused:
    return messages.Refused(reason=messages.RefusalReason.NOT_ALLOWED, message=message)
