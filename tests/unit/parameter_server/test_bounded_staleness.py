"""Pushes wait for older gradients, so that none gets too old, and none waits for ever."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disttrain.parameter_server.bounded_staleness import BoundedStaleness
from disttrain.parameter_server.deliveries import SenderIncarnation

PATIENCE_SECONDS = 2.0
FIRST, SECOND, THIRD = (SenderIncarnation(index, 1) for index in range(3))


def push(bounded: BoundedStaleness, sender: SenderIncarnation, version: int, now: float) -> None:
    bounded.arrived(sender, 1, version, now)
    bounded.begun(sender, now)
    bounded.ended(sender)


def frees(bounded: BoundedStaleness, sender: SenderIncarnation, count: int, first: int) -> int:
    """The first second, from `first` on, in which a push of this sender may begin."""
    return next(now for now in range(first, 10**7) if bounded.may_begin(sender, count, now))


def test_a_quick_replica_waits_before_a_slow_ones_gradient_gets_too_old() -> None:
    bounded = BoundedStaleness(most=2)
    for sender in (FIRST, SECOND):
        bounded.fetched(sender, 0, now=0.0)
    for version in (0, 1):
        bounded.arrived(FIRST, 1, version, now=0.1)
        assert bounded.may_begin(FIRST, version, now=0.1)
        bounded.begun(FIRST, now=0.1)
        bounded.ended(FIRST)
        bounded.fetched(FIRST, version + 1, now=0.1)

    bounded.arrived(FIRST, 1, 2, now=0.5)
    assert not bounded.may_begin(FIRST, 2, now=0.5)
    bounded.arrived(SECOND, 1, 0, now=0.6)
    assert bounded.may_begin(SECOND, 2, now=0.6)
    bounded.begun(SECOND, now=0.6)
    bounded.ended(SECOND)
    assert bounded.may_begin(FIRST, 3, now=0.7)
    bounded.begun(FIRST, now=0.7)
    assert bounded.waited_seconds == pytest.approx(0.2)


def test_who_is_silent_is_not_waited_for_longer_than_usual() -> None:
    bounded = BoundedStaleness(most=1)
    bounded.fetched(SECOND, 0, now=0.0)
    bounded.fetched(FIRST, 1, now=0.0)
    bounded.arrived(FIRST, 1, 1, now=0.1)
    assert not bounded.may_begin(FIRST, 1, now=PATIENCE_SECONDS - 0.1)
    assert bounded.may_begin(FIRST, 1, now=PATIENCE_SECONDS + 0.1)


def after_steps(*seconds: float) -> BoundedStaleness:
    """The second of two replicas has fetched at 0 s, after steps that took so long."""
    bounded = BoundedStaleness(most=1)
    for each in seconds:
        bounded.fetched(SECOND, 0, now=-each)
        push(bounded, SECOND, 0, now=0.0)
    bounded.fetched(SECOND, 0, now=0.0)
    bounded.fetched(FIRST, 1, now=0.0)
    bounded.arrived(FIRST, 1, 1, now=1.0)
    return bounded


def test_a_replica_has_four_times_its_usual_time() -> None:
    assert frees(after_steps(10), FIRST, 1, first=1) == 41


def test_neither_a_pause_nor_a_quick_step_says_what_is_usual() -> None:
    assert frees(after_steps(10, 3600, 10, 0.1, 10), FIRST, 1, first=1) == 41


def test_who_has_not_pushed_yet_has_four_times_what_others_have() -> None:
    bounded = BoundedStaleness(most=1)
    bounded.fetched(THIRD, 0, now=-5.0)
    push(bounded, THIRD, 0, now=0.0)
    bounded.fetched(SECOND, 0, now=0.0)
    bounded.fetched(FIRST, 1, now=0.0)
    bounded.arrived(FIRST, 1, 1, now=5.0)
    assert frees(bounded, FIRST, 1, first=1) == 81


def test_nobody_holds_others_up_for_longer_and_longer() -> None:
    bounded = BoundedStaleness(most=1)
    now, held = 0.0, []
    for _ in range(40):
        bounded.fetched(SECOND, 0, now)
        for sender in (FIRST, THIRD):
            bounded.fetched(sender, 1, now)
            push(bounded, sender, 1, now + 1)
        bounded.fetched(FIRST, 1, now + 1)
        bounded.arrived(FIRST, 1, 1, now + 1)
        freed = frees(bounded, FIRST, 1, first=int(now) + 1)
        held.append(freed - now)
        push(bounded, FIRST, 1, freed)
        now = float(freed)
        push(bounded, SECOND, 0, now)
    assert max(held) <= 4 * 4 * 5


def test_who_fetches_again_and_again_is_the_slower_for_it_and_no_more() -> None:
    bounded = BoundedStaleness(most=1)
    count = 0
    for second in range(100):
        bounded.fetched(SECOND, count, now=second)
        bounded.fetched(FIRST, count, now=second)
        bounded.arrived(FIRST, 1, count, now=second)
        if bounded.may_begin(FIRST, count, now=second):
            push(bounded, FIRST, count, now=second)
            count += 1
    assert count == 100


def test_who_may_push_and_does_not_is_not_waited_for_whatever_it_says() -> None:
    bounded = BoundedStaleness(most=1)
    bounded.arrived(SECOND, 1, 0, now=0.0)
    bounded.fetched(FIRST, 1, now=0.0)
    bounded.arrived(FIRST, 1, 1, now=0.0)
    for second in range(3):
        assert bounded.may_begin(SECOND, 1, now=second)
        assert not bounded.may_begin(FIRST, 1, now=second)
    assert bounded.may_begin(SECOND, 1, now=3.0)
    assert bounded.may_begin(FIRST, 1, now=3.0)


def test_pushes_that_wait_come_in_the_order_of_their_fetches() -> None:
    bounded = BoundedStaleness(most=1)
    fetched = {THIRD: 0, SECOND: 1, FIRST: 2}
    for sender, version in fetched.items():
        bounded.fetched(sender, version, now=0.0)
    for sender, version in fetched.items():
        bounded.arrived(sender, 1, version, now=0.1)
    assert [bounded.may_begin(sender, 2, now=0.1) for sender in fetched] == [True, False, False]


def test_a_push_under_way_counts_before_it_is_complete() -> None:
    bounded = BoundedStaleness(most=2)
    for sender, version in ((FIRST, 0), (SECOND, 1), (THIRD, 1)):
        bounded.fetched(sender, version, now=0.0)
    bounded.arrived(SECOND, 1, 1, now=0.1)
    assert bounded.may_begin(SECOND, 1, now=0.1)
    bounded.arrived(THIRD, 1, 1, now=0.1)
    bounded.begun(THIRD, now=0.1)
    assert not bounded.may_begin(SECOND, 1, now=0.1)


def test_who_is_dropped_is_not_waited_for() -> None:
    bounded = BoundedStaleness(most=1)
    bounded.fetched(SECOND, 0, now=0.0)
    bounded.fetched(FIRST, 2, now=0.0)
    bounded.arrived(FIRST, 1, 2, now=0.1)
    assert not bounded.may_begin(FIRST, 2, now=0.1)
    bounded.drop(SECOND)
    assert bounded.may_begin(FIRST, 2, now=0.1)


class Shard:
    """Of all replicas what they have fetched and not pushed."""

    def __init__(self, most: int) -> None:
        self.bounded = BoundedStaleness(most)
        self.count = 0
        self.stalest = 0
        self.fetched: dict[SenderIncarnation, int] = {}

    def fetch(self, sender: SenderIncarnation) -> None:
        self.fetched[sender] = self.count
        self.bounded.fetched(sender, self.count, now=0.0)

    def push(self, sender: SenderIncarnation) -> bool:
        """Whether it need not wait."""
        version = self.fetched[sender]
        self.bounded.arrived(sender, 1, version, now=0.0)
        if not self.bounded.may_begin(sender, self.count, now=0.0):
            return False
        self.stalest = max(self.stalest, self.count - version)
        self.bounded.begun(sender, now=0.0)
        self.count += 1
        self.bounded.ended(sender)
        return True


class Replica:
    """Fetches from all shards, then pushes to all."""

    def __init__(self, index: int, shards: list[Shard]) -> None:
        self.sender, self.shards = SenderIncarnation(index, 1), shards
        self.pushes = False
        """Else it fetches."""
        self.left = set(shards)
        """Where it has not done yet what it does."""

    def act(self, shard: Shard) -> bool:
        """Whether it need not wait."""
        if not self.pushes:
            shard.fetch(self.sender)
        elif not shard.push(self.sender):
            return False
        self.left.discard(shard)
        if not self.left:
            self.pushes, self.left = not self.pushes, set(self.shards)
        return True


@given(st.integers(0), st.integers(1, 6), st.integers(1, 3), st.integers(1, 12))
def test_somebody_can_always_go_on_and_no_gradient_is_older_than_it_must_be(
    seed: int, replicas: int, shards: int, most: int
) -> None:
    chance = random.Random(seed)
    all_shards = [Shard(most) for _ in range(shards)]
    several = [Replica(index, all_shards) for index in range(replicas)]
    for _ in range(200):
        left = [(replica, shard) for replica in several for shard in all_shards]
        left = [(replica, shard) for replica, shard in left if shard in replica.left]
        while True:
            replica, shard = chance.choice(left)
            if replica.act(shard):
                break
            left.remove((replica, shard))
            assert left, "all wait for one another"
    if most >= replicas - 1:
        assert max(shard.stalest for shard in all_shards) <= most
