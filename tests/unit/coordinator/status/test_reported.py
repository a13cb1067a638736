"""What the task's loss reports, from the replicas' heartbeats to metrics.jsonl."""

import pytest

from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport, added
from disttrain.coordinator.status import sections
from disttrain.coordinator.status.watch import Watch
from disttrain.transport.header import Role

ENDED = ReplicaReport(reported_sums={"kl": 8.0}, reported_steps={"kl": 2})


def a_report(steps: int, kl: float, beta: float = 0.0) -> ReplicaReport:
    sums = {"kl": kl * steps} | ({"beta": beta * steps} if beta else {})
    return ReplicaReport(reported_sums=sums, reported_steps=dict.fromkeys(sums, steps))


def member(index: int) -> MemberId:
    return MemberId(role=Role.REPLICA, index=index, incarnation=1)


def test_means_are_over_the_steps_of_all_replicas_lately() -> None:
    watch = Watch()
    watch.replicas = {member(0): a_report(10, kl=5.0)}
    watch.note(0, ENDED, now=0.0)
    assert watch.reported == {}, "what was before it looked is not lately"

    watch.replicas = {member(0): a_report(20, kl=4.0), member(1): a_report(2, kl=1.0, beta=0.5)}
    watch.note(0, ENDED, now=1.0)

    assert watch.reported == {"kl": pytest.approx((80.0 + 2.0 - 50.0) / 12), "beta": 0.5}


def test_nothing_is_reported_before_the_first_step() -> None:
    watch = Watch()
    assert watch.reported == {}
    watch.note(0, ReplicaReport(), now=0.0)
    assert watch.reported == {}


def test_a_new_incarnation_goes_on_from_the_sums_of_its_former_ones() -> None:
    both = added(ENDED, a_report(3, kl=2.0, beta=1.0))

    assert both.reported_sums == {"kl": 14.0, "beta": 3.0}
    assert both.reported_steps == {"kl": 5, "beta": 3}


def test_the_rate_is_that_of_the_shard_that_is_furthest_and_no_sum() -> None:
    watch = Watch()
    assert sections.learning_rate(watch) is None
    for index, (version, rate) in enumerate([(3, 0.1), (5, 0.2), (9, None)]):
        shard = MemberId(role=Role.SHARD, index=index, incarnation=1)
        watch.shards[shard] = ShardReport(version=version, rate=rate)

    assert sections.learning_rate(watch) == 0.2
    assert added(ShardReport(rate=0.1), ShardReport(rate=0.2)).rate == 0.2
