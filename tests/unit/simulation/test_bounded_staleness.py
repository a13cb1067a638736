"""Replicas of unequal speed in virtual time: whose gradients are in vain, and who waits."""

import pytest

from builders.simulated_jobs import SAMPLES, a_setting
from disttrain.simulation.machines import Machines
from disttrain.simulation.run import SimulatedRun

REPLICAS, SLOWER, SECONDS = 4, 4.0, 0.1
MACHINES = Machines(step_seconds=SECONDS, jitter=0.1, slower={3: SLOWER}, latency_seconds=0.0001)


def a_run(policy: str, most: int, shards: int) -> SimulatedRun:
    downpour = {
        "maxInFlight": 0,
        "optimizer": {"sgd": {"learningRate": 0.05}},
        "staleness": {"maximum": {"updates": most, "policy": policy}},
    }
    setting = a_setting(
        strategy={"downpour": downpour},
        portionSize=8,
        parameterServer={"shards": shards},
        replicas={"count": REPLICAS, "device": "cpu"},
    )
    return SimulatedRun(setting, MACHINES, REPLICAS, SAMPLES)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("most", [REPLICAS - 1, 2 * (REPLICAS - 1)])
def test_quick_replicas_wait_so_that_no_gradient_is_refused(most: int, shards: int) -> None:
    run = a_run("wait", most, shards)
    result = run.run()

    assert result.samples == 2 * SAMPLES
    assert max(result.staleness) == most
    assert not any(each.shard.refused for each in run.shards)
    # Its pace is that of the slow one: within its step, others push as often as the bound has
    # updates.
    steps = 2 * SAMPLES / 8
    seconds = SLOWER * SECONDS * steps / (1 + most)
    assert result.seconds == pytest.approx(seconds, rel=0.05)
    assert all(each.shard.stage.waited_seconds > seconds for each in run.shards)


def test_without_waiting_all_gradients_of_the_slow_one_are_in_vain() -> None:
    run = a_run("reject", REPLICAS - 1, shards=1)
    result = run.run()

    assert max(result.staleness) == REPLICAS - 1
    (shard,) = run.shards
    pushes = result.seconds / (SLOWER * SECONDS)
    assert shard.shard.refused["too_stale"] == pytest.approx(pushes, abs=2)
    assert shard.shard.stage.waited_seconds == 0
