"""Evaluations in jobs whose replicas are partitions: what they measure, and who dies in them."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import load_file

from builders.at_night import strikes
from builders.runs import TASKS, RunningJob
from disttrain.job import manifest_file
from disttrain.replica import evaluation, task_calls
from disttrain.replica.evaluation import Sums
from disttrain.task.task import Split

MANIFEST = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: divided}
spec:
  task: {entrypoint: "divided_images:Measured"}
  strategy: {downpour: {optimizer: {sgd: {learningRate: 0.05}}}}
  batchSize: 8
  portionSize: 24
  stop: {epochs: 6}
  evaluation: {batchSize: 36, keepBest: {better: lower}}
  audit: full
  coordinator: {heartbeatSeconds: 0.2, leaseSeconds: 3, memberTimeoutSeconds: 10}
  replicas: {count: 2, partitions: 2, device: cpu, threads: 1}
  failurePolicy: {restartBackoff: {initialSeconds: 0.1, maxSeconds: 1}}
"""


def measured_alone(job: RunningJob, file: Path) -> Sums:
    """What this process, on its own, measures of a file of the model."""
    manifest = manifest_file.load_job(job.output.parent / "job.yaml")
    task = task_calls.load(manifest, TASKS)
    model = task.model(0)
    model.load_state_dict(load_file(file))
    return evaluation.evaluate(task, model, task.examples(Split.TEST, 1), 36, lambda batch: batch)


def test_what_a_divided_replica_measures_is_what_one_process_does(tmp_path: Path) -> None:
    alone = ["spec.replicas.count=1", "spec.task.arguments={dropout: 0.3}"]
    with RunningJob(tmp_path, alone, MANIFEST) as job:
        assert job.wait() == 0, job.printed()
        job.assert_promises_held()
        summary = job.summary()
        lines = (job.output / "metrics.jsonl").read_text().splitlines()
        evaluations = [each for each in map(json.loads, lines) if "evaluation" in each]
        best = job.output / "best.safetensors"
        with safe_open(best, "pt") as opened:
            said = float(opened.metadata()["disttrain.value"])
        final, kept = (
            measured_alone(job, job.output / n) for n in ("model.safetensors", best.name)
        )
    assert summary["evaluations"] == len(evaluations) >= 2
    assert summary["finalLoss"] == pytest.approx(final.mean_loss, rel=1e-5)
    wanted = {name: value / final.samples for name, value in final.measures.items()}
    assert summary["finalMeasures"] == pytest.approx(wanted, rel=1e-5)
    assert said == pytest.approx(kept.mean_loss, rel=1e-5)
    assert said in [each["evaluation"]["loss"] for each in evaluations]


def state_of(status: dict[str, Any], names: tuple[str, ...]) -> list[tuple[int, str]]:
    members = {each["name"]: each for each in status["members"]}
    return [(members[n]["incarnation"], members[n]["state"]) for n in names if n in members]


@pytest.mark.parametrize(("partition", "number"), strikes([0, 1]))
def test_a_process_that_is_struck_in_an_evaluation_takes_its_replica_along_alone(
    tmp_path: Path, partition: int, number: int
) -> None:
    task = f"spec.task.arguments={{folder: {tmp_path}}}"
    with RunningJob(tmp_path, [task], MANIFEST) as job:
        job.wait_until(lambda _: (tmp_path / "measuring").exists())
        first = int((tmp_path / "measuring").read_text())
        index = next(index for index in (0, 1) if job.pid(f"replica-{index}-0") == first)
        struck = tuple(f"replica-{index}-{each}" for each in (0, 1))
        others = ("coordinator", "shard-0", *(f"replica-{1 - index}-{each}" for each in (0, 1)))
        before = [job.pid(name) for name in others]
        job.signal(struck[partition], number)
        # It goes on in the middle of what it measures, and calls the model.
        (tmp_path / "hurry").touch()

        job.wait_until(lambda status: state_of(status, struck) == [(2, "live")] * 2)
        (tmp_path / "gate").touch()
        assert job.wait() == 0, job.printed()
        assert [job.pid(name) for name in others] == before
        summary = job.summary()
        assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 1}
        assert summary["finalLoss"] == pytest.approx(
            measured_alone(job, job.output / "model.safetensors").mean_loss, rel=1e-5
        )
        job.assert_promises_held()
