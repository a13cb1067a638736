"""Evaluations beside the training of the others."""

from pathlib import Path

import pytest

from builders.runs import RunningJob


@pytest.mark.landing
def test_a_gradient_after_an_evaluation_is_not_as_stale_as_the_evaluation_was_long(
    tmp_path: Path,
) -> None:
    task = "spec.task.arguments={step_seconds: 0.02, measure_seconds: 2.0}"
    changes = [task, "spec.evaluation={everyEpochs: 1}", "spec.stop.epochs=4"]
    with RunningJob(tmp_path, changes) as job:
        assert job.wait() == 0
        summary = job.summary()
        assert summary["evaluations"] >= 2
        # An evaluation takes the other replica a hundred steps.
        assert max(map(int, summary["staleness"]["histogram"])) <= 32
        job.assert_promises_held()
