"""Which of several manifests is advised."""

import json
import math
from dataclasses import replace

import pytest

from builders.simulated_outcomes import TARGET, a_result, an_outcome
from disttrain.job.stop import TargetMetric
from disttrain.job.strategies.local_steps import LocalSteps
from disttrain.replay.final_values import Measured
from disttrain.simulation import comparison
from disttrain.simulation.evaluations import Result
from disttrain.simulation.outcome import Outcome


def downpour(*results: Result, target: TargetMetric | None = TARGET) -> Outcome:
    return an_outcome(*results, target=target, manifest="a.yaml")


def local_steps(*results: Result, target: TargetMetric | None = TARGET) -> Outcome:
    return an_outcome(*results, target=target, manifest="b.yaml", strategy=LocalSteps())


def ending_at(accuracy: float) -> Result:
    found = a_result(4, 10.0, met=False)
    last = replace(found.points[-1], measured=Measured(loss=None, measures={"accuracy": accuracy}))
    return replace(found, points=(last,))


def test_one_manifest_is_compared_with_none() -> None:
    assert comparison.advice([downpour(a_result(1, 9.0))]) is None


def test_the_quickest_of_all_is_named_with_its_replicas() -> None:
    found = comparison.advice(
        [
            downpour(a_result(1, 100.0), a_result(4, 80.0)),
            local_steps(a_result(1, 60.0), a_result(4, 20.0), a_result(16, 15.0, met=False)),
        ]
    )
    assert found == (
        "The quickest is b.yaml (localSteps) with 4 replicas: accuracy >= 0.9 after 20 s"
    )


def test_what_is_about_as_quick_with_fewer_replicas_or_bytes_is_told() -> None:
    found = comparison.advice(
        [
            downpour(a_result(2, 21.0), a_result(4, 20.5), a_result(8, 20.0)),
            local_steps(a_result(4, 22.3), a_result(8, 22.0, nbytes=400_000_000)),
        ]
    )
    assert found == (
        "The quickest is a.yaml (downpour) with 8 replicas: accuracy >= 0.9 after 20 s. "
        "About as quick: a.yaml (downpour) with 2 replicas, 21 s; "
        "b.yaml (localSteps) with 8 replicas, 22 s and 10 times fewer bytes"
    )


@pytest.mark.parametrize(
    "results", [[a_result(8, 20.0, met=False)], [a_result(8, 22.3)]], ids=["not met", "slower"]
)
def test_nothing_else_is_as_quick(results: list[Result]) -> None:
    both = [local_steps(a_result(8, 20.0)), downpour(*results)]
    assert comparison.as_quick(both) == []


def test_where_nobody_reaches_the_target_the_nearest_is_named() -> None:
    both = [downpour(ending_at(math.nan), ending_at(0.7)), local_steps(ending_at(0.8))]
    assert comparison.quickest(both) is None
    assert comparison.advice(both) == (
        "No manifest reaches accuracy >= 0.9: give all a longer stop, or other rates; "
        "the nearest is b.yaml (localSteps) with 4 replicas, accuracy 0.8"
    )
    least = TargetMetric(name="accuracy", at_most=0.1)
    both = [replace(each, target=least) for each in both]
    assert str(comparison.advice(both)).endswith("a.yaml (downpour) with 4 replicas, accuracy 0.7")


def test_of_a_measure_that_is_nowhere_there_is_no_nearest() -> None:
    other = TargetMetric(name="recall", at_least=0.5)
    both = [each(ending_at(0.7), target=other) for each in (downpour, local_steps)]
    assert str(comparison.advice(both)).endswith("give all a longer stop, or other rates")


@pytest.mark.parametrize("target", [None, TargetMetric(name="accuracy", at_least=0.8)])
def test_without_one_target_for_all_nothing_is_quickest(target: TargetMetric | None) -> None:
    both = [downpour(a_result(4, 10.0), target=target), local_steps(a_result(4, 9.0))]
    assert "give all of them the same by --set 'spec.stop.targetM" in str(comparison.advice(both))
    assert comparison.quickest(both) is None


def test_programs_get_the_quickest_and_what_is_as_quick() -> None:
    both = [downpour(a_result(4, 20.0), a_result(8, 19.0)), local_steps(a_result(4, 18.5))]
    document = json.loads(comparison.to_json(both))
    assert document["quickest"] == {
        "manifest": "b.yaml",
        "strategy": "localSteps",
        "replicas": 4,
        "seconds": 18.5,
        "bytes": 4_000_000_000,
    }
    assert [(each["manifest"], each["replicas"]) for each in document["asQuick"]] == [("a.yaml", 4)]
    assert document["advice"] == comparison.advice(both)
    assert [each["manifest"] for each in document["jobs"]] == ["a.yaml", "b.yaml"]
