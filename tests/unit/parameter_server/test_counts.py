"""Kill a shard at any point: what it reports as lost is what is lost, and counted once."""

import random
from dataclasses import dataclass, field

import pytest

from disttrain.parameter_server import acknowledged
from disttrain.parameter_server.acknowledged import Count
from disttrain.parameter_server.deliveries import (
    ChunkName,
    Decision,
    Delivered,
    Deliveries,
    SenderIncarnation,
)

SENDER = SenderIncarnation(0, 1)


def test_lost_is_acknowledged_minus_restored() -> None:
    held = Delivered(pushes=10, sequence=12)
    assert acknowledged.after_rollback(Count(15, 20), held) == Count(10, 12, lost=5, doubtful=20)
    assert acknowledged.after_rollback(Count(10, 12), held) == Count(10, 12)
    assert acknowledged.rolled_back({SENDER: Count(4, 4)}, {}) == {
        SENDER: Count(0, 0, lost=4, doubtful=4)
    }


def test_a_second_kill_before_anybody_was_told_counts_nothing_twice() -> None:
    held = Delivered(pushes=10, sequence=12)
    once = acknowledged.after_rollback(Count(15, 20), held)
    assert acknowledged.after_rollback(once, held) == once
    older = Delivered(pushes=7, sequence=7)
    assert acknowledged.after_rollback(once, older) == Count(7, 7, lost=8, doubtful=20)


def test_what_a_newer_checkpoint_brings_back_is_lost_no_more() -> None:
    early, late = Delivered(pushes=10, sequence=10), Delivered(pushes=20, sequence=20)
    second_incarnation = acknowledged.after_rollback(Count(20, 20), early)
    assert second_incarnation == Count(10, 10, lost=10, doubtful=20)
    assert acknowledged.after_rollback(second_incarnation, late) == Count(20, 20)
    for number in range(21, 26):
        delivered = Delivered(pushes=second_incarnation.pushes + 1, sequence=number)
        second_incarnation = acknowledged.after_push(second_incarnation, delivered)
    assert acknowledged.after_rollback(second_incarnation, late) == Count(
        20, 20, lost=5, doubtful=25
    )


def test_a_push_whose_answer_never_left_is_sent_again_and_not_lost() -> None:
    lost = Count(10, 12, lost=5, doubtful=20)
    again = acknowledged.after_push(lost, Delivered(pushes=11, sequence=20))
    assert again == Count(11, 20, lost=4)
    killed_again = acknowledged.after_rollback(again, Delivered(pushes=10, sequence=12))
    assert killed_again == lost


def test_a_push_whose_answer_arrived_is_lost_for_good() -> None:
    lost = Count(10, 12, lost=5, doubtful=20)
    assert acknowledged.after_push(lost, Delivered(pushes=11, sequence=21)) == Count(11, 21, lost=5)


@dataclass
class Disk:
    """What outlives a shard: its file, its checkpoints; and what the coordinator was told."""

    stored: Count = field(default_factory=Count)
    checkpoints: list[tuple[Delivered, frozenset[int]]] = field(
        default_factory=lambda: [(Delivered(), frozenset())]
    )
    told: int = 0


class Shard:
    """One incarnation, which may end between any two of its steps."""

    def __init__(self, disk: Disk, newest: int = -1) -> None:
        self.held, self.values = disk.checkpoints[newest]
        self.disk = disk
        self.table = Deliveries()
        self.table.restore({SENDER: self.held})
        self.table.admit(*SENDER)

    def settle(self) -> None:
        self.disk.stored = acknowledged.after_rollback(self.disk.stored, self.held)

    def tell(self) -> None:
        self.disk.told = self.disk.stored.lost

    def push(self, sequence: int) -> None:
        self.table.hello(*SENDER, sequence)
        if self.table.decide(*SENDER, ChunkName(sequence, 0, 1)) is not Decision.APPLY:
            return
        self.table.begin(SENDER, chunks=1)
        assert self.table.applied(*SENDER)
        delivered = self.table.complete(*SENDER, Delivered())
        self.values |= {sequence}
        self.disk.stored = acknowledged.after_push(self.disk.stored, delivered)

    def write(self) -> None:
        self.disk.checkpoints.append((self.table.of(*SENDER), self.values))


def killed_and_back(disk: Disk, chance: random.Random) -> Shard:
    """Maybe killed again as it comes back: before the file is changed, or before it is told."""
    shard = Shard(disk)
    for _ in range(chance.randrange(4)):
        if len(disk.checkpoints) > 1 and chance.random() < 0.2:
            disk.checkpoints.pop()
        # The newest may be committed only when this incarnation has looked.
        is_early = len(disk.checkpoints) > 1 and chance.random() < 0.3
        shard = Shard(disk, -2 if is_early else -1)
        if chance.random() < 0.7:
            shard.settle()
            if chance.random() < 0.7:
                shard.tell()
    shard.settle()
    shard.tell()
    return shard


@pytest.mark.parametrize("seed", range(100))
def test_the_count_is_exact_wherever_kill_9_comes(seed: int) -> None:
    chance, disk, unanswered, lost = random.Random(seed), Disk(), 1, 0
    shard = Shard(disk)
    for _ in range(60):
        shard.push(unanswered)
        if chance.random() < 0.7:
            unanswered += 1
        if chance.random() < 0.2:
            shard.write()
        if chance.random() < 0.2:
            shard = killed_and_back(disk, chance)
        shard.push(unanswered)
        shard.tell()
        missing = set(range(1, unanswered)) - shard.values
        assert disk.told == len(missing)
        lost = max(lost, len(missing))
    assert lost
