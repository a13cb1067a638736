"""Local steps whose pushes go by time: slow replicas push as often as fast ones."""

import pytest

from builders.simulated_jobs import a_setting
from disttrain.parameter_server import quorum
from disttrain.parameter_server.quorum import Work
from disttrain.simulation.machines import Machines
from disttrain.simulation.run import SimulatedRun

REPLICAS, BATCH, STEP_SECONDS, SLOWER = 3, 8, 0.1, 4.0
SECONDS = 2.0
"""Between two pushes of a replica: 20 steps of a fast one, 5 of the slow one."""
PUSHES = 12
SLOW = Machines(step_seconds=STEP_SECONDS, slower={0: SLOWER})


def trained(**local: object) -> SimulatedRun:
    sgd = {"name": "SGD", "arguments": {"lr": 0.01}}
    setting = a_setting(
        strategy={"localSteps": {"optimizer": sgd, **local}},
        stop={"seconds": PUSHES * SECONDS + 1.0},
        batchSize=BATCH,
        replicas={"count": REPLICAS, "device": "cpu"},
    )
    run = SimulatedRun(setting, SLOW, REPLICAS, evaluate_every=10**6)
    run.run()
    return run


def pushes(run: SimulatedRun) -> list[int]:
    """Of each replica."""
    return [member.connection.pushes.answered.pushes for member in run._members]


def test_a_replica_four_times_slower_pushes_as_often_by_seconds() -> None:
    found = pushes(trained(steps=500, seconds=SECONDS))
    assert all(abs(each - PUSHES) <= 1 for each in found), found


def test_by_steps_it_pushes_four_times_more_seldom() -> None:
    slow, *fast = pushes(trained(steps=20))
    assert slow == PUSHES // SLOWER
    assert all(abs(each - PUSHES) <= 1 for each in fast), fast


def test_its_shorter_pushes_weigh_by_their_samples_in_a_merge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    merged: list[dict[int, Work]] = []
    weights = quorum.weights

    def noting(work: dict[int, Work]) -> dict[int, float]:
        merged.append(dict(work))
        return weights(work)

    monkeypatch.setattr(quorum, "weights", noting)
    trained(steps=500, seconds=SECONDS, quorum=REPLICAS)

    whole = [work for work in merged if len(work) == REPLICAS]
    assert len(whole) > PUSHES
    for work in whole:
        found = weights(work)
        assert work[0].samples == pytest.approx(work[1].samples / SLOWER, abs=2 * BATCH)
        assert found[0] == pytest.approx(work[0].samples / sum(w.samples for w in work.values()))
