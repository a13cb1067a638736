"""Pushes wait for older gradients, so that none gets too old, and none waits for ever."""

import random

from hypothesis import given
from hypothesis import strategies as st

from disttrain.parameter_server.bounded_staleness import BoundedStaleness

PATIENCE_SECONDS = 2.0


def test_a_quick_replica_waits_before_a_slow_ones_gradient_gets_too_old() -> None:
    bounded = BoundedStaleness(most=2)
    for sender in (0, 1):
        bounded.fetched(sender, 0, now=0.0)
    for version in (0, 1):
        bounded.arrived(0, version, now=0.1)
        assert bounded.may_begin(0, version, now=0.1)
        bounded.begun(0, now=0.1)
        bounded.ended(0, now=0.1)
        bounded.fetched(0, version + 1, now=0.1)

    bounded.arrived(0, 2, now=0.5)
    assert not bounded.may_begin(0, 2, now=0.5)
    bounded.arrived(1, 0, now=0.6)
    assert bounded.may_begin(1, 2, now=0.6)
    bounded.begun(1, now=0.6)
    bounded.ended(1, now=0.6)
    assert bounded.may_begin(0, 3, now=0.7)
    bounded.begun(0, now=0.7)
    assert abs(bounded.waited_seconds - 0.2) < 1e-9


def test_who_is_silent_is_not_waited_for_longer_than_usual() -> None:
    bounded = BoundedStaleness(most=1)
    bounded.fetched(1, 0, now=0.0)
    bounded.fetched(0, 1, now=0.0)
    bounded.arrived(0, 1, now=0.1)
    assert not bounded.may_begin(0, 1, now=PATIENCE_SECONDS - 0.1)
    assert bounded.may_begin(0, 1, now=PATIENCE_SECONDS + 0.1)


def test_a_slow_replica_has_four_times_its_own_time() -> None:
    bounded = BoundedStaleness(most=1)
    bounded.fetched(1, 0, now=0.0)
    bounded.arrived(1, 0, now=10.0)
    bounded.begun(1, now=10.0)
    bounded.ended(1, now=10.0)
    bounded.fetched(1, 1, now=10.0)
    bounded.fetched(0, 2, now=10.0)
    bounded.arrived(0, 2, now=11.0)
    assert not bounded.may_begin(0, 2, now=49.0)
    assert bounded.may_begin(0, 2, now=51.0)


def test_nobody_knows_yet_how_slow_it_is_it_has_the_time_of_the_slowest() -> None:
    bounded = BoundedStaleness(most=1)
    bounded.fetched(2, 0, now=0.0)
    bounded.arrived(2, 0, now=10.0)
    bounded.begun(2, now=10.0)
    bounded.ended(2, now=10.0)
    bounded.fetched(1, 1, now=10.0)
    bounded.fetched(0, 2, now=10.0)
    bounded.arrived(0, 2, now=11.0)
    assert not bounded.may_begin(0, 2, now=49.0)


def test_pushes_that_wait_come_in_the_order_of_their_fetches() -> None:
    bounded = BoundedStaleness(most=1)
    for sender, version in ((2, 0), (1, 1), (0, 2)):
        bounded.fetched(sender, version, now=0.0)
    for sender, version in ((0, 2), (1, 1), (2, 0)):
        bounded.arrived(sender, version, now=0.1)
    assert [bounded.may_begin(sender, 2, now=0.1) for sender in (0, 1, 2)] == [False, False, True]


def test_a_push_under_way_counts_before_it_is_complete() -> None:
    bounded = BoundedStaleness(most=2)
    for sender, version in ((0, 0), (1, 1), (2, 1)):
        bounded.fetched(sender, version, now=0.0)
    bounded.arrived(2, 1, now=0.1)
    bounded.begun(2, now=0.1)
    bounded.arrived(1, 1, now=0.1)
    assert not bounded.may_begin(1, 1, now=0.1)


def test_who_is_dropped_is_not_waited_for() -> None:
    bounded = BoundedStaleness(most=1)
    bounded.fetched(1, 0, now=0.0)
    bounded.fetched(0, 2, now=0.0)
    bounded.arrived(0, 2, now=0.1)
    assert not bounded.may_begin(0, 2, now=0.1)
    bounded.drop(1)
    assert bounded.may_begin(0, 2, now=0.1)


class Shard:
    """Of all replicas what they have fetched and not pushed."""

    def __init__(self, most: int) -> None:
        self.bounded = BoundedStaleness(most)
        self.count = 0
        self.stalest = 0
        self.fetched: dict[int, int] = {}

    def fetch(self, sender: int) -> None:
        self.fetched[sender] = self.count
        self.bounded.fetched(sender, self.count, now=0.0)

    def push(self, sender: int) -> bool:
        """Whether it need not wait."""
        version = self.fetched[sender]
        self.bounded.arrived(sender, version, now=0.0)
        if not self.bounded.may_begin(sender, self.count, now=0.0):
            return False
        self.stalest = max(self.stalest, self.count - version)
        self.bounded.begun(sender, now=0.0)
        self.count += 1
        self.bounded.ended(sender, now=0.0)
        return True


class Replica:
    """Fetches from all shards, then pushes to all."""

    def __init__(self, sender: int, shards: list[Shard]) -> None:
        self.sender, self.shards = sender, shards
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
    several = [Replica(sender, all_shards) for sender in range(replicas)]
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


def test_what_was_fetched_first_since_a_push_is_what_the_next_one_is_of() -> None:
    bounded = BoundedStaleness(most=1)
    for version in (0, 1):
        bounded.fetched(1, version, now=0.0)
    bounded.fetched(0, 1, now=0.0)
    bounded.arrived(0, 1, now=0.1)
    assert not bounded.may_begin(0, 1, now=0.1)
