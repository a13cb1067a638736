"""Jobs that end by what evaluations find, with real processes."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

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


def test_patience_counts_on_over_a_killed_coordinator(tmp_path: Path) -> None:
    hurry = tmp_path / "hurry"
    assignments = (
        f"spec.task.arguments={{samples: 256, step_seconds: 0.2, hurry: '{hurry}'}}",
        "spec.evaluation={everyEpochs: 1, batchSize: 32}",
        "spec.stop={epochs: 90, patience: {name: counted, evaluations: 3, minimumImprovement: 99}}",
    )
    with RunningJob(tmp_path, assignments) as job:
        job.wait_until(lambda status: status.get("evaluations", 0) >= 1)
        job.kill("coordinator")
        hurry.touch()
        assert job.wait() == 0, job.printed()
        summary = job.summary()
        assert (summary["phase"], summary["reason"]) == ("Complete", "Patience")
        assert summary["restarts"]["coordinator"] == 1
        # The first one, three in vain, and that of the exported model.
        assert summary["evaluations"] == 5
        job.assert_promises_held()


def test_the_model_of_the_best_evaluation_is_kept_as_it_was_measured(tmp_path: Path) -> None:
    """The measure grows, and lower values are wanted: the first evaluation stays the best."""
    assignments = (
        "spec.task.arguments={samples: 256, step_seconds: 0.01}",
        "spec.evaluation={everyEpochs: 1, keepBest: {name: counted, better: lower}, batchSize: 32}",
        "spec.stop={epochs: 6}",
    )
    with RunningJob(tmp_path, assignments) as job:
        assert job.wait() == 0, job.printed()
        assert "the best evaluation is" in job.printed()
        best = job.summary()["bestModel"]
        lines = map(json.loads, (job.output / "metrics.jsonl").read_text().splitlines())
        found = [line for line in lines if "evaluation" in line]
        first, last = found[0]["evaluation"]["counted"], found[-1]["evaluation"]["counted"]
        assert best["value"] == first < last
        counts = load_file(job.output / "best.safetensors")["counts"]
        assert float(counts.mean()) == pytest.approx(first)
        job.assert_promises_held()


@pytest.mark.parametrize(("epochs", "every"), [(6, 1), (1, 1), (1, 0)])
def test_an_exported_model_that_is_the_best_one_is_kept_too(
    tmp_path: Path, epochs: int, every: int
) -> None:
    """The measure grows: the last evaluation, of the exported model, is the best."""
    rules = f"{{everyEpochs: {every}, keepBest: {{name: counted}}, batchSize: 32}}"
    assignments = (
        "spec.task.arguments={samples: 256, step_seconds: 0.01}",
        f"spec.evaluation={rules}",
        f"spec.stop={{epochs: {epochs}}}",
    )
    with RunningJob(tmp_path, assignments) as job:
        assert job.wait() == 0, job.printed()
        summary = job.summary()
        assert (summary["evaluations"] > 1) is (epochs > 1)
        assert summary["bestModel"] == {
            "name": "counted",
            "value": summary["finalMeasures"]["counted"],
            "samples": summary["samples"],
        }
        best = load_file(job.output / "best.safetensors")
        exported = load_file(job.output / "model.safetensors")
        assert best.keys() == exported.keys()
        assert all(torch.equal(best[name], tensor) for name, tensor in exported.items())
        job.assert_promises_held()
