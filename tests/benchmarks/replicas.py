"""What more replicas bring where each has a machine of its own: seconds and samples to an accuracy.

The step of a replica takes time, but no core, so that two cores carry many of them: processes,
shards and messages are real. With `--output` a page with a table and pictures is left.
"""

import argparse
import math
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import measured_jobs
from builders.line_chart import LineChart, Points
from builders.report import Bar, measured_version, median, print_report, say, told

TASKS = Path(__file__).resolve().parents[1] / "tasks"
MANIFEST = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: replicas}
spec:
  task: {entrypoint: spirals:Spirals}
  batchSize: 32
  evaluation: {everyEpochs: null, everySeconds: 0.5}
  parameterServer: {shards: 2, threads: 1}
  replicas: {threads: 1, device: cpu}
"""
TITLES = (
    "replicas",
    "`maxInFlight`",
    "seconds",
    "samples",
    "samples per second",
    "staleness, median",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How much is measured."""

    replicas: Sequence[int]
    step_seconds: float
    accuracy: float
    most_samples: int
    seeds: int


FULL = Scale(
    replicas=(1, 2, 4, 8, 16), step_seconds=0.1, accuracy=0.93, most_samples=120_000, seeds=2
)
QUICK = Scale(replicas=(1, 4), step_seconds=0.02, accuracy=0.5, most_samples=20_000, seeds=1)
IN_FLIGHT = (1, 0)
"""1 is the default."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one job came to when it met the accuracy; NaN if it never did."""

    seconds: float
    samples: float
    staleness: float
    """Updates between the fetch of a gradient's parameters and its push: the median."""


Found = Mapping[tuple[int, int], Sequence[Run]]
"""The seeds' runs by `maxInFlight` and replicas."""


def main() -> None:
    """Measure, print the report, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short steps: that it runs")
    parser.add_argument("--output", type=Path, help="folder of the page, such as docs/methods")
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    scale = QUICK if options.quick else FULL
    cases = [(in_flight, count) for in_flight in IN_FLIGHT for count in scale.replicas]
    found: dict[tuple[int, int], list[Run]] = {case: [] for case in cases}
    for seed in range(scale.seeds):
        for in_flight, count in cases:
            run = measure(in_flight, count, seed, scale)
            say(f"seed {seed}, maxInFlight {in_flight}, {count} replicas: {run}")
            found[in_flight, count].append(run)
    if options.output:
        write_page(options.output, found, scale)
    most = median_run(found[1, scale.replicas[-1]]).seconds / median_run(found[1, 1]).seconds
    name = f"seconds with {scale.replicas[-1]} replicas, ratio to one"
    figures = [dict(zip(TITLES, row, strict=True)) for row in rows(found)]
    print_report("replicas", {"runs": figures}, [Bar(name, most, 0.6, at_least=False)])


def measure(in_flight: int, replicas: int, seed: int, scale: Scale) -> Run:
    """One `disttrain run` until the accuracy."""
    fields: dict[str, Any] = {
        "task.arguments": {"step_seconds": scale.step_seconds},
        "strategy": {"downpour": {"maxInFlight": in_flight}},
        "replicas.count": replicas,
        "seed": seed,
        "stop": {
            "samples": scale.most_samples,
            "targetMetric": {"name": "accuracy", "atLeast": scale.accuracy},
        },
    }
    lines = measured_jobs.run(MANIFEST, [TASKS / "spirals.py"], fields).lines
    stale = [line["stalenessP50"] for line in lines if line.get("stalenessP50") is not None]
    staleness = statistics.median(stale) if stale else math.nan
    for line in lines:
        if "evaluation" in line and line["evaluation"]["accuracy"] >= scale.accuracy:
            return Run(line["seconds"], line["samples"], staleness)
    return Run(math.nan, math.nan, staleness)


def median_run(runs: Sequence[Run]) -> Run:
    """The median of each figure."""
    return Run(
        seconds=median([run.seconds for run in runs]),
        samples=median([run.samples for run in runs]),
        staleness=median([run.staleness for run in runs]),
    )


def rows(found: Found) -> list[tuple[float, ...]]:
    """Medians over the seeds, in the order of `TITLES`."""
    medians = {case: median_run(runs) for case, runs in found.items()}
    return [
        (count, in_flight, run.seconds, run.samples, run.samples / run.seconds, run.staleness)
        for (in_flight, count), run in medians.items()
    ]


def write_page(folder: Path, found: Found, scale: Scale) -> None:
    """replicas.md with a table, and two pictures beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, list[Points]] = {}
    samples: dict[str, list[Points]] = {}
    for in_flight in IN_FLIGHT:
        runs = [(n, median_run(found[in_flight, n])) for n in scale.replicas]
        name = f"maxInFlight: {in_flight}"
        seconds[name] = [[(n, run.seconds) for n, run in runs if math.isfinite(run.seconds)]]
        samples[name] = [
            [(run.staleness, run.samples) for _, run in runs if math.isfinite(run.samples)]
        ]
    to = f"to an accuracy of {scale.accuracy}"
    over_replicas = LineChart(across="replicas", upwards=f"seconds {to}")
    over_replicas.draw(folder / "sleeping-seconds-over-replicas.svg", seconds)
    over_staleness = LineChart(across="staleness, median", upwards=f"samples {to}")
    over_staleness.draw(folder / "sleeping-samples-over-staleness.svg", samples)
    (folder / "replicas.md").write_text(page(found, scale))


def page(found: Found, scale: Scale) -> str:
    """The text of the page."""
    table = "\n".join(
        f"| {count:.0f} | {in_flight:.0f} | {told(seconds, 1)} | {told(samples, 0)} "
        f"| {told(speed, 0)} | {told(staleness, 0)} |"
        for count, in_flight, seconds, samples, speed, staleness in rows(found)
    )
    return f"""# More replicas: figures

Written by `tests/benchmarks/replicas.py` at commit {measured_version()}: the README's spirals with
Adagrad as it is by default, until {scale.accuracy:.0%} of the test points are told apart. A step
takes {scale.step_seconds:g} s without work for a core, as if each replica had a machine of its own.
Medians over {scale.seeds} seeds, on {os.cpu_count()} cores.

| {" | ".join(TITLES)} |
|{"---|" * len(TITLES)}
{table}

![seconds over replicas](sleeping-seconds-over-replicas.svg)

![samples over staleness](sleeping-samples-over-staleness.svg)
"""


if __name__ == "__main__":
    main()
