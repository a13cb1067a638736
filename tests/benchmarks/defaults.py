"""What the default settings cost: samples to a plain loop's accuracy, on five tasks.

A job gets only the fields that it must have (and the number of its replicas). The plain loop is
torch.optim with the rule and rate that the defaults choose, once constant and once with their
warm-up: jobs are held against the better of the two. The target of a task is 0.98 of the plain
loop's best evaluation within the task's epochs, the mean over the seeds. Between two evaluations,
one per epoch on both sides, accuracy is taken to grow evenly. `--data FOLDER`: with
cifar10-train.parquet and cifar10-test.parquet; else the few images of the examples are used, whose
500 tests are too few for a figure.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import measured_jobs
from builders.report import Bar, print_report, say

TESTS = Path(__file__).resolve().parents[1]
REPLICAS = (1, 2, 4)
SHARE = 0.98
_PATIENCE = 3
"""A job may take so many times the plain loop's epochs."""

MANIFEST = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: defaults}
spec:
  task: {entrypoint: defaults:Task}
  strategy: {downpour: {}}
  batchSize: 32
  stop: {epochs: 1}
"""

Evaluations = Sequence[tuple[int, float]]
"""Samples and accuracy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A task, and for how long the plain loop trains it."""

    task: str
    epochs: int
    arguments: dict[str, Any] = field(default_factory=dict)


def workloads(data: Path | None) -> dict[str, Workload]:
    """By the names that figures have."""
    # As many tests that chance moves an accuracy by less than the target is below the best one,
    # and epochs in which accuracy still grows.
    images: dict[str, Any] = {"train_samples": 2000, "test_samples": 3000}
    if data is not None:
        images["train"] = str((data / "cifar10-train.parquet").absolute())
        images["test"] = str((data / "cifar10-test.parquet").absolute())
    digits = {"width": 16, "hidden": 64}
    return {
        "digits": Workload(task="Digits", epochs=20, arguments=digits),
        "photographs": Workload(
            task="FewPhotographs",
            epochs=6,
            arguments=images,
        ),
        "characters": Workload(task="Characters", epochs=12),
        "table": Workload(task="Table", epochs=6),
        "softmax_regression": Workload(task="SoftmaxRegression", epochs=20),
    }


def main() -> None:
    """Measure every task and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small task: that it runs")
    parser.add_argument("--data", type=Path, help="folder of the full CIFAR-10 files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="*", help="some of them only")
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    chosen = options.tasks or (["softmax_regression"] if options.quick else None)
    seeds = range(1 if options.quick else options.seeds)
    figures = {
        name: compare(work, seeds)
        for name, work in workloads(options.data).items()
        if chosen is None or name in chosen
    }
    two = [task["replicas"][2]["ratio"] for task in figures.values()]
    bars = [
        Bar("2 replicas: ratio of samples, median", statistics.median(two), 1.3, at_least=False)
    ]
    for name, task in figures.items():
        ratio = task["replicas"][2]["ratio"]
        bars.append(Bar(f"{name}: 2 replicas, ratio of samples", ratio, 1.6, at_least=False))
        reached = task["replicas"][4]["reached"] / len(seeds)
        bars.append(Bar(f"{name}: 4 replicas, runs that reach the target", reached, 1.0))
    print_report("defaults", {"tasks": figures}, bars)


def compare(work: Workload, seeds: range) -> dict[str, Any]:
    """The plain loops and jobs of 1, 2 and 4 replicas, seed by seed."""
    plain = {
        name: [plain_evaluations(work, seed, scheduled=scheduled) for seed in seeds]
        for name, scheduled in (("constant", False), ("warm-up", True))
    }
    best = {name: [max(accuracy for _, accuracy in run) for run in plain[name]] for name in plain}
    target = SHARE * max(statistics.mean(accuracies) for accuracies in best.values())
    wanted = {name: [samples_to(target, run) for run in plain[name]] for name in plain}
    least = min(statistics.median(samples) for samples in wanted.values())
    say(f"{work.task}: plainly {wanted} samples to {target:.3f}")
    figures: dict[str, Any] = {"epochs": work.epochs, "target": target}
    figures |= {"plain_samples": wanted, "plain_best": best, "replicas": {}}
    for replicas in REPLICAS:
        jobs = [run_job(work, seed, replicas, target) for seed in seeds]
        found = [samples_to(target, job.evaluations) for job in jobs]
        ratio = statistics.median(found) / least
        staleness = [job.staleness_p50 for job in jobs]
        say(f"{work.task}, {replicas} replicas: {found} samples, {ratio=:.2f}, {staleness=}")
        figures["replicas"][replicas] = {
            "samples": found,
            "staleness_p50": staleness,
            "reached": sum(samples < float("inf") for samples in found),
            "ratio": ratio,
        }
    return figures


def samples_to(target: float, evaluations: Evaluations) -> float:
    """When the accuracy was first reached; infinity if it never was."""
    before = (0, 0.0)
    for samples, accuracy in evaluations:
        if accuracy >= target:
            share = (target - before[1]) / (accuracy - before[1])
            return before[0] + share * (samples - before[0])
        before = (samples, accuracy)
    return float("inf")


def plain_evaluations(work: Workload, seed: int, *, scheduled: bool) -> Evaluations:
    """One plain loop in a fresh process."""
    options = {
        "seed": seed,
        "threads": 1,
        "epochs": work.epochs,
        "arguments": work.arguments,
        "batch_size": 32,
        "channels_last": False,
        "evaluate_every_epochs": 1,
        "target": 1.1,
        "scheduled": scheduled,
    }
    command = [sys.executable, str(TESTS / "oracles" / "plain_training.py")]
    command += [str(TESTS / "tasks"), f"defaults:{work.task}", json.dumps(options)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)["evaluations"]
    return [(one["samples"], one["accuracy"]) for one in found]


class Job(NamedTuple):
    """What a job showed."""

    evaluations: Evaluations
    staleness_p50: float | None
    """Updates, over the whole job."""


def run_job(work: Workload, seed: int, replicas: int, target: float) -> Job:
    """One `disttrain run` until the target."""
    fields: dict[str, Any] = {
        "task": {"entrypoint": f"defaults:{work.task}", "arguments": work.arguments},
        "stop": {
            "epochs": _PATIENCE * work.epochs,
            "targetMetric": {"name": "accuracy", "atLeast": target},
        },
        "replicas.count": replicas,
        "seed": seed,
    }
    job = measured_jobs.run(MANIFEST, [TESTS / "tasks" / "defaults.py"], fields)
    found = [(line["samples"], line["evaluation"]["accuracy"]) for line in job.evaluations]
    return Job(found, job.summary["staleness"]["p50"])


if __name__ == "__main__":
    main()
