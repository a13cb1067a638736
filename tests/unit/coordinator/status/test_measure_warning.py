"""A measure that is no number is warned of: in status.json, and once in the coordinator's log."""

import math
from pathlib import Path

import pytest

from builders.machines import Machine
from disttrain.coordinator.journal import job_entries
from disttrain.coordinator.journal.state import Evaluation, State
from disttrain.coordinator.process.reporting import Reporting, RunFiles
from disttrain.coordinator.process.served_metrics import ServedMetrics
from disttrain.coordinator.status import sections, status


def an_evaluation(**measures: float) -> Evaluation:
    return Evaluation(epoch=1, samples=10, seconds=1.0, loss=0.5, measures=measures)


@pytest.mark.parametrize(
    ("measures", "said"),
    [
        ({"accuracy": 0.5}, None),
        ({"f1": 0.5, "accuracy": math.nan}, "the measure accuracy of the latest evaluation is"),
        ({"f1": math.inf, "accuracy": math.nan}, "the measures f1, accuracy of the latest"),
    ],
)
def test_measures_that_are_no_numbers_are_named(
    measures: dict[str, float], said: str | None
) -> None:
    found = sections.measure_warning(State(evaluations=[an_evaluation(**measures)]))
    assert found is said is None or (said is not None and (found or "").startswith(said))


def test_before_any_evaluation_nothing_is_said() -> None:
    assert sections.measure_warning(State()) is None


def test_the_log_and_the_status_warn_and_the_log_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine().coordinator
    metrics = ServedMetrics("127.0.0.1:0")
    reporting = Reporting(machine, RunFiles(tmp_path), metrics, losses_are_exact=True)
    for _ in range(2):
        evaluation = an_evaluation(accuracy=math.nan)
        machine.state.evaluations.append(evaluation)
        reporting.note(job_entries.EvaluationEnded(evaluation=evaluation), now=1.0)

    told = status.status(machine.state, machine.stages, machine.watch, now=1.0)["training"]
    assert "Task.measure()" in told["warning"]
    assert [line.message for line in caplog.records].count(told["warning"]) == 1
