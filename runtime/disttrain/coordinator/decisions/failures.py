"""Who failed lately, and when it may come again. Decides; no I/O.

Kept in memory only: a coordinator that is started again lets everybody join at once.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import name_of
from disttrain.job.failure_policy import RestartBackoff

_MOST = 10_000
"""Pods that were replaced never come again."""


class _Failure(NamedTuple):
    """The latest one."""

    ended: float
    before: int
    """Failures in a row before it."""


@dataclass(slots=True)
class Failures:
    """The latest failure of each, by name; the oldest is first."""

    _found: dict[str, _Failure] = field(default_factory=dict)

    def note(self, group: Group, ended: float, backoff: RestartBackoff) -> None:
        """An incarnation has failed, of which nothing was heard after this time."""
        who = _known_as(group.name, group.place, group.partitions)
        latest = self._found.pop(who, None)
        is_first = latest is None or backoff.forgets_after(ended - group.joined)
        before = 0 if latest is None or is_first else latest.before + 1
        self._found[who] = _Failure(ended, before)
        if len(self._found) > _MOST:
            del self._found[next(iter(self._found))]

    def put_off(
        self, request: messages.Join, index: int, now: float, backoff: RestartBackoff
    ) -> messages.ComeAgain | None:
        """That the process comes too early for the next incarnation; None: it may begin."""
        name = name_of(request.role, index)
        latest = self._found.get(_known_as(name, request.place, request.partitions))
        if latest is None:
            return None
        seconds = latest.ended + backoff.seconds(latest.before) - now
        if seconds <= 0.0:
            return None
        message = (
            f"spec.failurePolicy.restartBackoff; failures of {name} in a row: {latest.before + 1}"
        )
        return messages.ComeAgain(seconds=seconds, message=message)


def _known_as(name: str, place: str, partitions: int) -> str:
    """A pod of one process takes any index that is free, and is known by its place."""
    return place if place and partitions == 1 else name
