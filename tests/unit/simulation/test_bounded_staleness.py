"""Replicas of unequal speed in virtual time: whose gradients are in vain, and who waits."""

from functools import partial

import pytest

from builders.simulated_jobs import SAMPLES, a_setting
from disttrain.simulation import run as run_module
from disttrain.simulation.machines import Machines
from disttrain.simulation.run import SimulatedRun
from disttrain.transport.in_memory import Network

REPLICAS, SLOWER, SECONDS = 4, 4.0, 0.1
MACHINES = Machines(step_seconds=SECONDS, jitter=0.1, slower={3: SLOWER}, latency_seconds=0.0001)


def a_run(policy: str, most: int, push_every: int = 1) -> SimulatedRun:
    downpour = {
        "maxInFlight": 0,
        "pushEvery": push_every,
        "optimizer": {"sgd": {"learningRate": 0.05}},
        "staleness": {"maximum": {"updates": most, "policy": policy}},
    }
    setting = a_setting(
        strategy={"downpour": downpour},
        portionSize=8 * push_every,
        parameterServer={"shards": 2},
        replicas={"count": REPLICAS, "device": "cpu"},
    )
    return SimulatedRun(setting, MACHINES, REPLICAS, SAMPLES)


@pytest.mark.parametrize("most", [REPLICAS - 1, 2 * (REPLICAS - 1)])
@pytest.mark.parametrize(("push_every", "chunk_bytes"), [(1, 1 << 20), (1, 1024), (2, 1 << 20)])
def test_quick_replicas_wait_so_that_no_gradient_is_refused(
    monkeypatch: pytest.MonkeyPatch, most: int, push_every: int, chunk_bytes: int
) -> None:
    monkeypatch.setattr(run_module, "Network", partial(Network, chunk_bytes=chunk_bytes))
    run = a_run("wait", most, push_every)
    result = run.run()

    assert result.samples == 2 * SAMPLES
    assert max(result.staleness) == most
    assert not any(each.shard.refused for each in run.shards)
    # Within a step of the slow one, others push as often as the bound has updates.
    seconds = SLOWER * SECONDS * (2 * SAMPLES / 8) / (1 + most)
    assert result.seconds == pytest.approx(seconds, rel=0.1)
    assert all(each.shard.stage.waited_seconds > seconds for each in run.shards)


def test_without_waiting_all_gradients_of_the_slow_one_are_in_vain() -> None:
    run = a_run("reject", REPLICAS - 1)
    result = run.run()

    assert max(result.staleness) == REPLICAS - 1
    pushes = result.seconds / (SLOWER * SECONDS)
    for each in run.shards:
        assert each.shard.refused["too_stale"] == pytest.approx(pushes, abs=2)
        assert each.shard.stage.waited_seconds == 0
