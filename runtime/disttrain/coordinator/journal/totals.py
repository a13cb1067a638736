"""Counters of the job that outlive the processes that counted. Pure."""

from dataclasses import dataclass, field
from functools import reduce

from disttrain.coordinator.protocol.fields import LostUpdates, MemberId, Strict
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport, added
from disttrain.job import names
from disttrain.transport.header import Role


def _key(shard: int, sender: LostUpdates) -> str:
    return f"{shard}.{sender.index}.{sender.incarnation}"


@dataclass(kw_only=True, slots=True)
class Totals(Strict):
    """Sums over all incarnations that have ended, and what no single member knows."""

    restarts: dict[str, int] = field(default_factory=dict)
    """By role."""
    updates_lost: dict[str, int] = field(default_factory=dict)
    """Acknowledged and rolled back, by replica; a shard's part of a push counts as one."""
    updates_lost_by_shard: dict[str, int] = field(default_factory=dict)
    """The same by shard and incarnation of a replica: see `_key`. A shard reports sums over its
    incarnations."""
    partial_chunks: int = 0
    """Chunks of pushes of the dead that were applied only in part."""
    non_finite: dict[str, int] = field(default_factory=dict)
    """Of ended incarnations, by replica."""
    checkpoints: int = 0
    checkpoint_failures: int = 0
    damaged_checkpoints: list[int] = field(default_factory=list)
    """Numbers of those that a shard found damaged as it was to restore them."""
    blocking_seconds: float = 0.0
    """Longest time that a checkpoint stopped a shard."""
    evaluations: int = 0
    replica_reports: dict[int, ReplicaReport] = field(default_factory=dict)
    """Last reports of ended incarnations, added up, by index."""
    shard_reports: dict[int, ShardReport] = field(default_factory=dict)

    def add_restart(self, role: Role) -> None:
        key = role.name.lower()
        self.restarts[key] = self.restarts.get(key, 0) + 1

    def note_damaged(self, number: int | None) -> None:
        if number is not None and number not in self.damaged_checkpoints:
            self.damaged_checkpoints.append(number)

    def lost_by(self, shard: int, sender: LostUpdates) -> int:
        return self.updates_lost_by_shard.get(_key(shard, sender), 0)

    def set_updates_lost(self, shard: int, sender: LostUpdates) -> None:
        """A shard says how many it has lost in all: said again, it counts once."""
        more = sender.lost - self.lost_by(shard, sender)
        if more:
            self.updates_lost_by_shard[_key(shard, sender)] = sender.lost
            key = names.replica_name(sender.index)
            self.updates_lost[key] = self.updates_lost.get(key, 0) + more
            if not self.updates_lost[key]:
                del self.updates_lost[key]

    def take_over_losses(self, shards: int) -> None:
        """From now on there are `shards`, which report the losses of those that are no more."""
        sums: dict[str, int] = {}
        for key, lost in self.updates_lost_by_shard.items():
            shard, _, sender = key.partition(".")
            taken_over = f"{int(shard) % shards}.{sender}"
            sums[taken_over] = sums.get(taken_over, 0) + lost
        self.updates_lost_by_shard = sums

    def add_non_finite(self, index: int, count: int) -> None:
        if count:
            key = names.replica_name(index)
            self.non_finite[key] = self.non_finite.get(key, 0) + count

    def add_report(
        self, member: MemberId, replica: ReplicaReport | None, shard: ShardReport | None
    ) -> None:
        if replica is not None:
            old = self.replica_reports.get(member.index, ReplicaReport())
            self.replica_reports[member.index] = added(old, replica)
        if shard is not None:
            old_shard = self.shard_reports.get(member.index, ShardReport())
            self.shard_reports[member.index] = added(old_shard, shard)

    def all_replicas(self) -> ReplicaReport:
        return reduce(added, self.replica_reports.values(), ReplicaReport())


@dataclass(kw_only=True, slots=True)
class Extremes(Strict):
    """The lowest and highest value that a measure had."""

    lowest: float
    highest: float
