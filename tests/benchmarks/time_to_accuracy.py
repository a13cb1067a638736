"""Downpour with 2 shards and 2 replicas beside the plain PyTorch loop, on 2 cores.

CIFAR-10 (`--data FOLDER` with cifar10-train.parquet and cifar10-test.parquet): samples per second
without evaluations, then seconds (evaluations every 4 s included, on both sides) and samples to
55% test accuracy. Digits: seconds to 97% from the command, start-up included. The strategy is the
default one, and the plain loop has its rule and rate, but no warm-up. Both sides run in turn, seed
by seed; figures are medians, for which a run that never came to the accuracy took longest.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import measured_jobs
from builders.report import Bar, print_report, say

TESTS = Path(__file__).resolve().parents[1]
EXAMPLES = TESTS.parent / "examples"

MANIFEST = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: benchmark}
spec:
  task: {entrypoint: "", arguments: {}}
  strategy: {downpour: {}}
  batchSize: 32
  stop: {epochs: 1000}
  evaluation: null
  parameterServer: {shards: 2, threads: 1}
  replicas: {count: 2, threads: 1, device: cpu}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A task and how both sides train it."""

    folder: Path
    entrypoint: str
    arguments: dict[str, Any]
    batch_size: int
    channels_last: bool


def main() -> None:
    """Measure both workloads and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples: that it runs")
    parser.add_argument("--data", type=Path, help="folder of the full CIFAR-10 files")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    seeds = range(1 if options.quick else options.seeds)
    cifar_figures, cifar_bars = cifar(options.data, seeds, quick=options.quick)
    digits_figures, digits_bars = digits(seeds, quick=options.quick)
    figures = {"cifar10": cifar_figures, "digits": digits_figures}
    print_report("time_to_accuracy", figures, cifar_bars + digits_bars)


def cifar(data: Path | None, seeds: range, *, quick: bool) -> tuple[dict[str, Any], list[Bar]]:
    """Samples per second, and time and samples to 55%."""
    arguments: dict[str, Any] = {"test_samples": 200 if quick else 2000}
    if data is not None:
        for split in ("train", "test"):
            arguments[split] = str((data / f"cifar10-{split}.parquet").absolute())
    work = Workload(
        folder=TESTS / "tasks",
        entrypoint="photographs:Photographs",
        arguments=arguments,
        batch_size=64,
        channels_last=True,
    )
    target = 0.55 if data is not None and not quick else 0.0
    rates = compare_rates(work, seeds, samples=1280 if quick else 25_600)
    ours = [downpour(work, s, {"evaluation": {"everySeconds": 4, "everyEpochs": None},
                               "stop": stop(target, quick=quick)}) for s in seeds]  # fmt: skip
    limit = 2_000 if quick else 250_000
    theirs = [
        plain(work, s, threads=2, samples=limit, evaluate_every_seconds=4.0, target=target)
        for s in seeds
    ]
    figures = rates | {
        "target_accuracy": target,
        "downpour": [reached(run, target) for run in ours],
        "plain": [reached(run, target) for run in theirs],
    }
    bars = [Bar("cifar10 samples per second, ratio to plain", rates["ratio"], 0.95)]
    if target:
        for key, most in (("seconds", 1.25), ("samples", 1.3)):
            ratio = median(figures["downpour"], key) / median(figures["plain"], key)
            bars.append(Bar(f"cifar10 {key} to 55%, ratio to plain", ratio, most, at_least=False))
    return figures, bars


def digits(seeds: range, *, quick: bool) -> tuple[dict[str, Any], list[Bar]]:
    """Seconds to 97% from the command, and samples per second."""
    work = Workload(
        folder=EXAMPLES / "digits",
        entrypoint="digits:Digits",
        arguments={"width": 16, "hidden": 64},
        batch_size=32,
        channels_last=False,
    )
    rates = compare_rates(work, seeds, samples=3_200 if quick else 64_000)
    target = 0.5 if quick else 0.97
    changes = {"evaluation": {"everyEpochs": 1}, "stop": {"epochs": 60} | metric(target)}
    runs = [downpour(work, seed, changes) for seed in seeds]
    figures = rates | {"target_accuracy": target, "downpour": [reached(r, target) for r in runs]}
    seconds = median(figures["downpour"], "seconds_from_command")
    speed = statistics.median(rates["downpour_samples_per_second"])
    return figures, [
        Bar("digits seconds to 97% from the command", seconds, 3.5, at_least=False),
        Bar("digits samples per second", speed, 5_900.0),
    ]


def compare_rates(work: Workload, seeds: range, samples: int) -> dict[str, Any]:
    """Samples per second without evaluations, in turn; the ratio of the medians."""
    ours, theirs = [], []
    for seed in seeds:
        run = downpour(work, seed, {"stop": {"samples": samples}})
        ours.append(rate(run))
        theirs.append(plain(work, seed, threads=2, samples=samples)["samples_per_second"])
    return {
        "downpour_samples_per_second": ours,
        "plain_samples_per_second": theirs,
        "ratio": statistics.median(ours) / statistics.median(theirs),
    }


def downpour(work: Workload, seed: int, changes: dict[str, Any]) -> dict[str, Any]:
    """One `disttrain run`: the lines of its metrics.jsonl, with seconds since the command."""
    fields: dict[str, Any] = {"seed": seed, "batchSize": work.batch_size, **changes}
    fields["task"] = {"entrypoint": work.entrypoint, "arguments": work.arguments}
    job = measured_jobs.run(MANIFEST, work.folder.glob("*.py"), fields)
    for line in job.lines:
        line["seconds_from_command"] = line["time"] - job.began
    samples = job.summary["samples"]
    say(f"{work.entrypoint}, seed {seed}: {samples:,} samples in {job.seconds:.1f} s")
    return {
        "progress": [line for line in job.lines if "evaluation" not in line],
        "evaluations": [
            line | {"accuracy": line["evaluation"]["accuracy"]} for line in job.evaluations
        ],
        "total_seconds": job.seconds,
        "summary": job.summary,
    }


def plain(work: Workload, seed: int, *, threads: int, samples: int, **more: Any) -> dict[str, Any]:
    """One plain loop in a fresh process."""
    options = {
        "seed": seed,
        "threads": threads,
        "samples": samples,
        "arguments": work.arguments,
        "batch_size": work.batch_size,
        "channels_last": work.channels_last,
        "evaluate_every_seconds": None,
        "target": 1.1,
        "scheduled": False,
    } | more
    command = [sys.executable, str(TESTS / "oracles" / "plain_training.py"), str(work.folder)]
    command += [work.entrypoint, json.dumps(options)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def rate(run: dict[str, Any]) -> float:
    """Samples per second between the first and the last line of progress, or in all."""
    first, last = run["progress"][0], run["progress"][-1]
    if last["seconds"] <= first["seconds"]:
        return float(run["summary"]["samples"] / run["summary"]["seconds"])
    return float((last["samples"] - first["samples"]) / (last["seconds"] - first["seconds"]))


def reached(run: dict[str, Any], target: float) -> dict[str, float]:
    """The first evaluation that reached the target; infinity where none did."""
    for line in run["evaluations"]:
        if line["accuracy"] >= target:
            keys = ("seconds", "samples", "accuracy", "seconds_from_command")
            return {key: line[key] for key in keys if key in line}
    return dict.fromkeys(("seconds", "samples", "accuracy", "seconds_from_command"), float("inf"))


def median(rows: list[dict[str, float]], key: str) -> float:
    """Median of a figure over the seeds."""
    return statistics.median(row[key] for row in rows)


def metric(target: float) -> dict[str, Any]:
    """The part of a stop rule that waits for an accuracy."""
    return {"targetMetric": {"name": "accuracy", "atLeast": target}}


def stop(target: float, *, quick: bool) -> dict[str, Any]:
    """Until the target, or a bound that shows that it is not reached."""
    return {"samples": 2_000} if quick else {"samples": 250_000} | metric(target)


if __name__ == "__main__":
    main()
