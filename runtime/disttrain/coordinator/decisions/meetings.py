"""What the members of groups tell each other while they form. Decides; no I/O.

Kept in memory only, and for the present incarnation of a group alone: a group that is formed has no
use for it.
"""

from dataclasses import dataclass, field

from disttrain.coordinator.decisions.transaction import Transaction
from disttrain.coordinator.protocol import messages
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
        partitions = 1 if group is None else group.partitions
        key = request.member.role, request.member.index
        meeting = self._found.get(key)
        if meeting is None or meeting.incarnation != request.member.incarnation:
            meeting = self._found[key] = _Meeting(request.member.incarnation)
        most = _KEYS_PER_MEMBER * partitions
        if len(meeting.values.keys() | request.put.keys()) > most:
            message = f"a group of {partitions} may give at most {most} values"
            return messages.Refused(reason=messages.RefusalReason.NOT_ALLOWED, message=message)
        meeting.values |= request.put
        found = {key: meeting.values[key] for key in request.wanted if key in meeting.values}
        return messages.Met(coordinator=transaction.state.incarnation, values=found)
