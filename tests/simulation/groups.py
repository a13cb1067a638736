"""What must hold of the groups of every run, by the coordinator's journal."""

from collections import defaultdict
from collections.abc import Iterable

from disttrain.coordinator.journal.entries import Entry
from disttrain.coordinator.journal.member_entries import (
    CommandIssued,
    LeaseGranted,
    MemberJoined,
    MemberLost,
)
from disttrain.coordinator.protocol.commands import Fence
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.transport.header import Role


def violations(entries: Iterable[Entry], partitions: int) -> list[str]:
    """Incarnations that are whole or get no work, are lost as a whole, and are fenced once."""
    seen = _Seen(partitions)
    for entry in entries:
        if isinstance(entry, MemberJoined):
            seen.join(entry)
        elif isinstance(entry, MemberLost):
            seen.lose(entry.member)
        elif isinstance(entry, LeaseGranted):
            seen.work(entry.member)
        elif isinstance(entry, CommandIssued) and isinstance(entry.order, Fence):
            seen.fence(entry.member, entry.order)
    return seen.violations


class _Seen:
    """What the entries so far have told."""

    def __init__(self, partitions: int) -> None:
        self.violations: list[str] = []
        self._partitions = partitions
        self._joined: defaultdict[MemberId, set[int]] = defaultdict(set)
        self._instances: set[str] = set()
        self._lost: set[MemberId] = set()
        self._fenced: set[tuple[MemberId, MemberId]] = set()

    def join(self, entry: MemberJoined) -> None:
        member, group = entry.member, entry.member.speaker
        self._require(member.partition not in self._joined[group], f"{member} joined twice")
        self._require(group not in self._lost, f"{member} joined what was over")
        self._require(entry.instance not in self._instances, f"{member} was in another one")
        self._joined[group].add(member.partition)
        self._instances.add(entry.instance)

    def lose(self, group: MemberId) -> None:
        self._require(group not in self._lost, f"{group} was lost twice")
        self._lost.add(group)

    def work(self, group: MemberId) -> None:
        is_whole = len(self._joined[group]) == self._partitions and group not in self._lost
        self._require(is_whole, f"{group} got work and is not whole")

    def fence(self, shard: MemberId, fence: Fence) -> None:
        group = MemberId(role=Role.REPLICA, index=fence.index, incarnation=fence.incarnation)
        self._require(group in self._lost, f"{group} was fenced and is not lost")
        self._require((shard, group) not in self._fenced, f"{group} was fenced twice")
        self._fenced.add((shard, group))

    def _require(self, holds: bool, words: str) -> None:  # noqa: FBT001 - Read as an assertion.
        if not holds:
            self.violations.append(words)
