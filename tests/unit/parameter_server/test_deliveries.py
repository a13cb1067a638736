import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disttrain.parameter_server import deliveries
from disttrain.parameter_server.deliveries import (
    ChunkName,
    Decision,
    Delivered,
    Deliveries,
    SenderIncarnation,
)


class Shard:
    """Counts how often each chunk was applied; a crash goes back to the last snapshot."""

    def __init__(self, table: type[Deliveries]) -> None:
        self.incarnation = 1
        self.applied: Counter[tuple[int, int]] = Counter()
        self.deliveries = table()
        self.deliveries.admit(0, 1)
        self.make = table
        self.take_snapshot()

    def take_snapshot(self) -> None:
        rows = deliveries.to_rows(self.deliveries.copy())
        self.snapshot = (Counter(self.applied), rows)

    def crash(self) -> None:
        self.incarnation += 1
        self.applied = Counter(self.snapshot[0])
        self.deliveries = self.make()
        self.deliveries.restore(deliveries.from_rows(self.snapshot[1]))
        self.deliveries.admit(0, 1)

    def push(self, incarnation: int, name: ChunkName) -> bool:
        """Whether the sender may count the push as acknowledged."""
        if incarnation != self.incarnation:
            return False
        decision = self.deliveries.decide(0, 1, name)
        if decision is Decision.APPLY:
            if name.chunk == 0:
                self.deliveries.begin(SenderIncarnation(0, 1), chunks=name.chunks)
            self.applied[name.sequence, name.chunk] += 1
            if self.deliveries.applied(0, 1):
                self.deliveries.complete(0, 1, Delivered())
                return True
        return decision is Decision.DUPLICATE and name.chunk == name.chunks - 1


class Sender:
    """Pushes 1, 2, 3, ... and believes nothing but the shard's answers."""

    def __init__(self) -> None:
        self.sequence, self.chunk, self.chunks = 1, 0, 3
        self.incarnation = 1

    def next_message(self) -> tuple[int, ChunkName]:
        name = ChunkName(self.sequence, self.chunk, self.chunks)
        self.chunk = min(self.chunk + 1, self.chunks - 1)
        return self.incarnation, name

    def acknowledged(self, sequence: int) -> None:
        if sequence == self.sequence:
            self.sequence, self.chunk = sequence + 1, 0
            self.chunks = 1 + self.sequence % 4

    def greet(self, shard: Shard) -> None:
        known = shard.deliveries.hello(0, 1, self.sequence)
        self.incarnation = shard.incarnation
        if known.sequence >= self.sequence:
            self.acknowledged(self.sequence)
        else:
            self.chunk = known.next_chunk


def simulate(seed: int, table: type[Deliveries] = Deliveries) -> None:
    """Messages are lost, doubled and reordered; the shard crashes. No chunk may count twice."""
    chance = random.Random(seed)
    shard, sender = Shard(table), Sender()
    network: list[tuple[int, ChunkName]] = []
    since: Counter[int] = Counter()
    for _ in range(120):
        event = chance.choices(
            ["send", "deliver", "greet", "snapshot", "crash"], [8, 10, 2, 1, 0.4]
        )
        if event == ["send"]:
            network.append(sender.next_message())
        elif event == ["deliver"] and network:
            place = chance.randrange(len(network))
            message = network[place] if chance.random() < 0.2 else network.pop(place)
            if shard.push(*message) and chance.random() < 0.8:
                sender.acknowledged(message[1].sequence)
        elif event == ["greet"]:
            sender.greet(shard)
        elif event == ["snapshot"]:
            shard.take_snapshot()
        elif event == ["crash"]:
            shard.crash()
            since[shard.incarnation] += 1
        check(shard, sender)


def check(shard: Shard, sender: Sender) -> None:
    assert all(count == 1 for count in shard.applied.values()), "a chunk was applied twice"
    state = shard.deliveries.of(0, 1)
    complete = {
        sequence
        for sequence, _ in shard.applied
        if all(shard.applied[sequence, chunk] for chunk in range(chunks_of(sequence)))
    }
    assert state.pushes == len(complete)
    assert state.sequence <= sender.sequence, "the shard is ahead of what was sent"


def chunks_of(sequence: int) -> int:
    return 3 if sequence == 1 else 1 + sequence % 4


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32))
def test_no_chunk_is_applied_twice_whatever_the_network_does(seed: int) -> None:
    simulate(seed)


def test_without_loss_every_push_arrives() -> None:
    shard, sender = Shard(Deliveries), Sender()
    while sender.sequence < 20:
        message = sender.next_message()
        if shard.push(*message):
            sender.acknowledged(message[1].sequence)
    assert shard.deliveries.of(0, 1).pushes == 19


class WithoutDuplicateCheck(Deliveries):
    """Mutant: an earlier chunk is applied again."""

    def decide(self, sender: int, incarnation: int, name: ChunkName) -> Decision:
        decision = super().decide(sender, incarnation, name)
        is_early = name.sequence == self.of(sender, incarnation).sequence + 1
        return Decision.APPLY if decision is Decision.DUPLICATE and is_early else decision


class WithoutOrder(Deliveries):
    """Mutant: a chunk that comes too early is taken."""

    def decide(self, sender: int, incarnation: int, name: ChunkName) -> Decision:
        decision = super().decide(sender, incarnation, name)
        return Decision.APPLY if decision is Decision.OUT_OF_ORDER else decision


class ForgetsPartialPushes(Deliveries):
    """Mutant: the snapshot says nothing of a push under way."""

    def restore(self, delivered: dict[SenderIncarnation, Delivered]) -> None:
        super().restore(
            {
                incarnation: Delivered(sequence=state.sequence, pushes=state.pushes)
                for incarnation, state in delivered.items()
            }
        )


class BelievesOldHello(Deliveries):
    """Mutant: a hello always begins the push anew."""

    def hello(self, sender: int, incarnation: int, first_unacknowledged: int) -> Delivered:
        state = super().hello(sender, incarnation, first_unacknowledged)
        fresh = Delivered(sequence=state.sequence, pushes=state.pushes)
        self.delivered[SenderIncarnation(sender, incarnation)] = fresh
        return fresh


@pytest.mark.parametrize(
    "mutant", [WithoutDuplicateCheck, WithoutOrder, ForgetsPartialPushes, BelievesOldHello]
)
def test_broken_tables_are_found(mutant: type[Deliveries]) -> None:
    def finds(seed: int) -> bool:
        try:
            simulate(seed, mutant)
        except (AssertionError, KeyError):
            return True
        return False

    assert any(finds(seed) for seed in range(300))


def test_a_fenced_incarnation_stays_out_and_a_newer_one_comes_in() -> None:
    table = Deliveries()
    table.admit(3, 2)
    assert table.standing(3, 2) is Decision.APPLY
    assert table.standing(3, 1) is Decision.OLD_INCARNATION
    assert table.standing(4, 1) is Decision.UNKNOWN_SENDER
    table.fence(3, 2)
    table.admit(3, 2)
    assert table.standing(3, 2) is Decision.OLD_INCARNATION
    table.admit(3, 3)
    assert table.standing(3, 3) is Decision.APPLY
    assert table.standing(3, 2) is Decision.OLD_INCARNATION


def test_a_rollback_does_not_let_a_zombie_in() -> None:
    table = Deliveries()
    table.admit(0, 1)
    rows = deliveries.to_rows(table.copy())
    restored = Deliveries()
    restored.restore(deliveries.from_rows(rows))
    restored.admit(0, 2)
    assert restored.standing(0, 1) is Decision.OLD_INCARNATION


def test_pushes_lost_in_a_rollback_are_skipped_and_the_partial_one_is_counted() -> None:
    table = Deliveries()
    table.admit(0, 1)
    table.begin(SenderIncarnation(0, 1), chunks=3)
    table.applied(0, 1)
    state = table.hello(0, 1, 6)
    assert (state.sequence, state.next_chunk, state.partial_pushes) == (5, 0, 1)
    assert table.decide(0, 1, ChunkName(6, 0, 2)) is Decision.APPLY
    assert table.decide(0, 1, ChunkName(5, 1, 3)) is Decision.DUPLICATE


def test_a_push_that_was_given_up_says_so_when_it_is_sent_again() -> None:
    table = Deliveries()
    table.admit(0, 1)
    table.give_up(0, 1)
    assert table.decide(0, 1, ChunkName(1, 0, 2)) is Decision.REFUSED_BEFORE
    assert table.decide(0, 1, ChunkName(2, 0, 2)) is Decision.APPLY


@pytest.mark.parametrize("change", [lambda n: n + 1, lambda n: n - 1])
def test_a_push_does_not_change_its_number_of_chunks(change: Callable[[int], int]) -> None:
    table = Deliveries()
    table.admit(0, 1)
    table.begin(SenderIncarnation(0, 1), chunks=5)
    table.applied(0, 1)
    assert table.decide(0, 1, ChunkName(1, 1, change(5))) is Decision.OUT_OF_ORDER


def test_those_who_may_push_are_given_as_a_list() -> None:
    table = Deliveries()
    table.admit(0, 1)
    table.admit(1, 4)
    table.admit(2, 2)
    new, gone = table.differences({0: 1, 1: 5, 3: 1})
    assert new == [SenderIncarnation(1, 5), SenderIncarnation(3, 1)]
    assert gone == [SenderIncarnation(2, 2)]
