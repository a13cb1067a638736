"""A job that is to reach a target, with real processes."""

import json
from pathlib import Path

import pytest

from builders.runs import RunningJob

pytestmark = pytest.mark.landing


def test_a_model_that_misses_its_target_is_trained_on(tmp_path: Path) -> None:
    marker = tmp_path / "measured"
    assignments = (
        "spec.task.entrypoint=counting:Moody",
        f"spec.task.arguments.marker={marker}",
        "spec.evaluation={everyEpochs: 1, batchSize: 32}",
        "spec.stop={epochs: 90, targetMetric: {name: reached, atLeast: 1}}",
    )
    with RunningJob(tmp_path, assignments) as job:
        assert job.wait() == 0, job.printed()
        summary = job.summary()
        assert marker.exists()
        assert (summary["phase"], summary["reason"]) == ("Complete", "TargetMetric")
        assert summary["finalMeasures"] == {"reached": 1.0}
        assert summary["evaluations"] == 4
        lines = map(json.loads, (job.output / "metrics.jsonl").read_text().splitlines())
        missed = [line for line in lines if "evaluation" in line][1]
        assert summary["samples"] > missed["samples"]
        assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 0}
        job.assert_promises_held()
