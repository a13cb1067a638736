"""What outlives the simulated processes: the disk, the addresses, and what really happened."""

import random
from dataclasses import dataclass, field

from disttrain.coordinator.decisions.turn import CoordinatorSide
from disttrain.coordinator.settings import Settings
from disttrain.parameter_server.counts import Count
from disttrain.parameter_server.deliveries import Delivered, SenderLife
from simulation.clockwork import Clockwork, Process

Range = tuple[int, int, int]
"""Lease, first, end: offsets within the lease."""


def accuracy(updates: int) -> float:
    """Of a model with so many updates: one more may make it much better or worse."""
    return random.Random(updates).random()


@dataclass(frozen=True, slots=True)
class Push:
    """One update of one life of a replica."""

    sender: int
    incarnation: int
    sequence: int
    ranges: tuple[Range, ...]

    @property
    def samples(self) -> int:
        return sum(end - first for _, first, end in self.ranges)


@dataclass(slots=True)
class Snapshot:
    """One shard's part of a checkpoint."""

    delivered: dict[SenderLife, Delivered]
    applied: list[Push]
    chunks: list[tuple[int, int, int, int]]


@dataclass(frozen=True, slots=True)
class Applied:
    """A push that a shard applied completely."""

    time: float
    shard: int
    push: Push


@dataclass(slots=True)
class World:
    """Everything that is not inside a process."""

    clock: Clockwork
    stages: tuple[CoordinatorSide, ...]
    samples: int
    push_every: int = 1
    checkpoint_failure: float = 0.0
    processes: dict[str, Process] = field(default_factory=dict)
    """The living process of each name."""
    exported: int = 0
    """Checkpoint that the model file was made of."""
    staged: dict[int, dict[int, Snapshot]] = field(default_factory=dict)
    checkpoints: dict[int, dict[int, Snapshot]] = field(default_factory=dict)
    acknowledged: dict[int, dict[SenderLife, Count]] = field(default_factory=dict)
    """Each shard's mapped file."""
    history: list[Applied] = field(default_factory=list)
    """Every complete push, rolled back or not."""
    fenced_at: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """Shard, sender, incarnation -> when the shard first answered the fence."""
    lives: int = 0
    violations: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return self.stages[0].settings

    def exported_updates(self) -> int:
        """In the model file, over all shards."""
        return sum(len(part.applied) for part in self.checkpoints[self.exported].values())

    def new_pid(self) -> int:
        self.lives += 1
        return self.lives
