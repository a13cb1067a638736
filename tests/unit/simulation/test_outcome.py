"""What is advised, and how it is shown."""

from typing import Any

import pytest

from builders.simulated_outcomes import DOWNPOUR, TARGET, a_result, an_outcome
from disttrain.job.stop import TargetMetric
from disttrain.job.strategies.local_steps import LocalSteps
from disttrain.job.strategy_kind import StrategyKind
from disttrain.replay.final_values import Measured
from disttrain.simulation import outcome
from disttrain.simulation.evaluations import Point, Result


def advice(
    *results: Result, target: TargetMetric | None = TARGET, strategy: StrategyKind = DOWNPOUR
) -> str:
    return outcome.advice(an_outcome(*results, target=target, strategy=strategy))


def test_more_replicas_are_taken_as_long_as_they_are_worth_it() -> None:
    found = advice(a_result(1, 100.0), a_result(4, 30.0), a_result(16, 29.0))
    assert found.startswith("Take 4 replicas: accuracy >= 0.9 after 30 s, 3.3 times as fast as 1")
    assert "16 replicas: 29 s" in found


def test_replicas_without_a_group_are_told_instead_of_the_network() -> None:
    found = advice(a_result(1, 100.0), a_result(16, 30.0, computing=0.3, groups=10))
    assert "A batch makes 10 groups of portions for 16 replicas, so that 6 of them" in found
    assert "network" not in found


def test_a_batch_method_has_no_staleness_to_show() -> None:
    shown = outcome.text(an_outcome(a_result(4, 30.0, staleness={}, groups=10)))
    assert "          -  " in shown.splitlines()[2]


def test_a_number_behind_one_that_is_not_worth_it_may_be() -> None:
    assert advice(a_result(1, 100.0), a_result(2, 95.0), a_result(4, 30.0)).startswith("Take 4 ")


def test_one_replica_may_be_best() -> None:
    assert advice(a_result(1, 10.0), a_result(4, 12.0)).startswith("Take 1 replica: ")


def test_runs_without_the_target_are_named() -> None:
    found = advice(a_result(1, 100.0), a_result(4, 30.0), a_result(16, 90.0, met=False))
    assert found.startswith("Take 4 replicas")
    assert "Not reached with 16: the rate may be too high" in found
    assert advice(a_result(1, 9.0, met=False)).startswith("Nobody reaches accuracy >= 0.9: give")


@pytest.mark.parametrize(
    ("strategy", "remedies"),
    [
        (DOWNPOUR, "larger batches or pushEvery"),
        (LocalSteps(), "larger batches or more localSteps.steps"),
    ],
)
def test_replicas_that_mostly_wait_are_told_what_helps(
    strategy: StrategyKind, remedies: str
) -> None:
    found = advice(a_result(1, 10.0, computing=0.3), strategy=strategy)
    assert found.endswith(f"compute for 30% of their time only; {remedies} use the network less")


def test_nothing_is_advised_without_a_target() -> None:
    assert advice(a_result(1, 9.0, met=None), target=None).startswith("The job has no stop.target")


def test_the_staleness_is_that_of_the_pushes() -> None:
    result = a_result(4, 10.0)
    assert [result.staleness_at(share) for share in (0.005, 0.5, 0.99, 1.0)] == [0, 4, 4, 16]
    assert a_result(4, 10.0, staleness={}).staleness_at(0.5) == 0


def test_the_table_has_a_row_and_a_curve_for_each_run() -> None:
    results = (a_result(1, 100.0), a_result(4, 25.0, met=False))
    text = outcome.text(an_outcome(*results))
    lines = text.splitlines()
    assert lines[0] == "job.yaml (downpour): until accuracy >= 0.9"
    assert lines[2].split()[:5] == ["1", "100", "1.00", "100", "1"]
    assert lines[3].endswith("0.5, not reached")
    assert "4.00" in lines[3], "how much faster than the first"
    one, four = lines[6], lines[7]
    assert one == "       1  " + " " * 19 + "▁" * 20 + "█", "the longest is as wide as the picture"
    assert four == "       4  " + " " * 4 + "▁" * 6, "it ends where its run does"


def test_a_value_that_is_not_there_is_a_dash() -> None:
    nothing = (Point(seconds=1.0, samples=9, measured=Measured(loss=None, measures={})),)
    result = a_result(1, 1.0, met=None, points=nothing)
    text = outcome.text(an_outcome(result, target=None))
    assert text.splitlines()[2].endswith("  -")


@pytest.mark.parametrize("target", [TARGET, None])
def test_programs_get_all_of_it(target: TargetMetric | None) -> None:
    document: dict[str, Any] = outcome.document(an_outcome(a_result(2, 10.0), target=target))
    (run,) = document["runs"]
    assert (document["job"], document["manifest"]) == ("digits", "job.yaml")
    assert (run["replicas"], run["samplesPerSecond"], run["bytes"]) == (2, 10.0, 4_000_000_000)
    assert run["staleness"] == {"0": 1, "2": 98, "8": 1}
    assert run["evaluations"][1] == {
        "seconds": 10.0,
        "samples": 100,
        "loss": 0.4,
        "measures": {"accuracy": 0.95},
    }
