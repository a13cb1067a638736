"""The page with PP-ASGD's figures 3 (left) and 4: tables, pictures, and what the paper has."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders.cifar_runs import Case, Outcome
from builders.line_chart import LineChart, Points
from builders.pp_asgd_page import ASGD, PREDICTED, SYNCHRONOUS, table
from builders.report import measured_version, median, told
from disttrain.parallel.pricing import slowest_of

IN_NODES = "PP-ASGD, 8 nodes"
NODES = 8
TARGET = 0.6
"""The error whose time is told: the paper's, of its thousand classes."""
DEVIATION, DEVIATIONS = 0.1, (0.0, 0.1, 0.3)
BANDWIDTH, LATENCY, MODEL_BYTES = 1.25e9, 0.0002, 13_002 * 4
UNEVEN = {"jitter": DEVIATION, "bytes_per_second": BANDWIDTH, "latency_seconds": LATENCY}

Method = tuple[str, int]
"""Its name and how many workers it has."""
Found = Mapping[Method, Sequence[Outcome]]
"""The seeds' runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How much is measured."""

    workers: Sequence[int]
    compared: int
    """Workers with which ASGD is run, too."""
    seeds: int
    batch: int
    """Samples of a worker's gradient."""
    epochs: float
    until: float
    """The error at which a run ends."""


def step_seconds(workers: int, deviation: float = DEVIATION) -> float:
    """Seconds of a step in which all wait for each other, where one takes 1 s by itself.

    The slowest of so many normal ones (Blom 1958), and a ring that sums the gradients, with two
    messages for each worker (Thakur et al. 2005).
    """
    slowest = 1.0 + deviation * slowest_of(workers)
    share = 2 * (workers - 1) / workers
    return slowest + share * MODEL_BYTES / BANDWIDTH + 2 * (workers - 1) * LATENCY


def seconds_to(run: Outcome) -> float:
    """Of virtual time until the target; NaN: never."""
    return run.first(TARGET, by=1)


TITLES = (
    "method",
    "workers",
    "rate",
    f"seconds to {TARGET:.0%}",
    f"epochs to {TARGET:.0%}",
    "relative speed",
    "mean batch",
    "mean staleness",
    "updates per second",
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured."""

    scale: Scale
    found: Found

    def seconds(self, method: str, workers: int) -> float:
        """The median until the target."""
        return median([seconds_to(run) for run in self.found[method, workers]])

    def times_as_fast(self, method: str, other: str, workers: int) -> float:
        return self.seconds(other, workers) / self.seconds(method, workers)

    def rows(self) -> list[tuple[Any, ...]]:
        """Medians over the seeds, in the order of `TITLES`."""
        first = self.seconds(SYNCHRONOUS, self.scale.workers[0])
        return [
            (
                method,
                workers,
                runs[0].case.rate,
                self.seconds(method, workers),
                median([run.first(TARGET) for run in runs]),
                first / self.seconds(method, workers),
                float(runs[0].case.batch),
                median([run.staleness for run in runs]),
                median([run.updates / run.points[-1][1] for run in runs]),
            )
            for (method, workers), runs in self.found.items()
        ]

    def report(self) -> dict[str, Any]:
        """As JSON wants it."""
        return {
            "rows": [dict(zip(TITLES, row, strict=True)) for row in self.rows()],
            "beside the paper": self.beside_the_paper(),
        }

    def beside_the_paper(self) -> list[tuple[str, str, str]]:
        """What is shown, the paper's and ours."""
        scale = self.scale
        least, most = min(scale.workers), max(scale.workers)
        in_nodes = {least: PREDICTED, most: PREDICTED if most <= NODES else IN_NODES}
        ratio = self.times_as_fast(PREDICTED, ASGD, scale.compared)
        ratios = [
            f"{times(self.times_as_fast(name, SYNCHRONOUS, most))} ({name})"
            for name in dict.fromkeys((PREDICTED, in_nodes[most]))
        ]
        gains = [
            f"{times(self.seconds(PREDICTED, least) / self.seconds(name, most))} ({name})"
            for name in dict.fromkeys((PREDICTED, in_nodes[most]))
        ]
        synchronous = self.seconds(SYNCHRONOUS, least) / self.seconds(SYNCHRONOUS, most)
        return [
            (
                f"figure 3, left: PP-ASGD over ASGD, {scale.compared} workers",
                "about 2 times as fast, mean staleness 8.5",
                f"{times(ratio)}, mean staleness "
                f"{told(median([r.staleness for r in self.found[PREDICTED, scale.compared]]), 1)}",
            ),
            (
                f"figure 4b: PP-ASGD over SSGD, {most} workers",
                "1.9 times as fast; 1.8 to 1.9 with fewer",
                ", ".join(ratios),
            ),
            (
                f"figure 4b: PP-ASGD, {most} workers over {least}",
                f"near {most // least} times as fast",
                ", ".join(gains),
            ),
            (
                f"figure 4b: SSGD, {most} workers over {least}",
                f"less than {most // least} times as fast",
                times(synchronous),
            ),
            (
                "figure 4c: what grows with the workers",
                "the batch of an update: it sums the gradients that are there",
                "PP-ASGD: staleness and updates per second; with 8 nodes: the batch",
            ),
        ]


def times(ratio: float) -> str:
    return f"{ratio:.2g} times" if math.isfinite(ratio) and ratio else "not met"


def write(folder: Path, figures: Figures) -> None:
    """pp-asgd-workers.md, and the pictures beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    scale, found = figures.scale, figures.found
    over_time = LineChart(across="seconds", upwards="error on the test data")
    compared = {name: over_seconds(found[name, scale.compared]) for name in (ASGD, PREDICTED)}
    over_time.draw(folder / "pp-asgd-32-workers.svg", compared)
    ends = {min(scale.workers), max(scale.workers)}
    shown = {
        f"{name} ({workers})": over_seconds(runs)
        for (name, workers), runs in found.items()
        if workers in ends and name != ASGD
    }
    over_time.draw(folder / "pp-asgd-workers-errors.svg", shown)
    speeds = {
        name: over_workers(figures, name, TITLES.index("relative speed"))
        for name in (SYNCHRONOUS, PREDICTED, IN_NODES)
    }
    first = scale.workers[0]
    ideal = {"ideal": [[(float(n), n / first) for n in scale.workers]]}
    speed = LineChart(across="workers", upwards=f"relative speed to {TARGET:.0%}")
    speed.draw(folder / "pp-asgd-workers-speed.svg", {**speeds, **ideal})
    inside = {
        f"{name}: {what}": over_workers(figures, name, TITLES.index(what))
        for name in (PREDICTED, IN_NODES)
        for what in ("mean batch", "mean staleness", "updates per second")
    }
    chart = LineChart(across="workers", upwards="mean", is_logarithmic=True)
    chart.draw(folder / "pp-asgd-workers-inside.svg", inside)
    (folder / "pp-asgd-workers.md").write_text(page(figures))


def over_seconds(runs: Sequence[Outcome]) -> Sequence[Points]:
    return [[(seconds, error) for _, seconds, error in run.points] for run in runs]


def over_workers(figures: Figures, method: str, column: int) -> Sequence[Points]:
    """A line; in nodes it begins where there are as many workers as nodes."""
    names = {method, PREDICTED} if method == IN_NODES else {method}
    chosen = [
        (float(row[1]), float(row[column]))
        for row in figures.rows()
        if row[0] in names and (row[0] == method or row[1] <= NODES)
    ]
    return [[point for point in chosen if math.isfinite(point[1]) and point[1] > 0]]


def waits(figures: Figures) -> list[tuple[Any, ...]]:
    """How many times as fast as SSGD, by workers and by the deviation of a worker's step."""
    return [
        (
            workers,
            method,
            *(
                figures.times_as_fast(method, SYNCHRONOUS, workers)
                * step_seconds(workers, deviation)
                / step_seconds(workers)
                for deviation in DEVIATIONS
            ),
        )
        for method, workers in figures.found
        if method in {PREDICTED, IN_NODES}
    ]


def tried(figures: Figures) -> str:
    case: Case = figures.found[PREDICTED, figures.scale.compared][0].case
    return f"{case.growing_epochs:g}"


def page(figures: Figures) -> str:
    """The text of the page."""
    scale = figures.scale
    deviations = [f"deviation {deviation:g} s" for deviation in DEVIATIONS]
    return f"""# PP-ASGD's figures 3 (left) and 4, at our size

Written by `tests/benchmarks/pp_asgd_workers.py` at commit {measured_version()}: CIFAR-10 in
virtual time, momentum 0.99, no augmentation. What follows is ours, not the paper's. Images have
8 x 8 pixels, the network has one layer of 64 units. A gradient is of {scale.batch} samples. The
rate grows over the first {tried(figures)} epochs and stays. Each method has the quickest of two to
four rates: 0.003 over S + 1, times 1 and 3, for ASGD and SSGD also a third, for SSGD also 10.
Seeds: {scale.seeds}, of which the median is told. A run ends at an error of {scale.until:.0%}. The
target is {TARGET:.0%}, the paper's with a thousand classes.

**Time.** A worker computes a gradient in 1 s, with a deviation of {DEVIATION:g} s: its unit and its
deviation are ours. A machine has {BANDWIDTH * 8 / 1e9:g} Gbit/s each way, and a message
{LATENCY * 1000:g} ms. SSGD's step is that of the slowest worker, as is expected of so many normal
ones, and a ring that sums {MODEL_BYTES / 1000:.0f} kB.

**Methods.** SSGD is Algorithm 4: one replica with the batch of all workers. PP-ASGD is Downpour
with `staleness.predict`. A shard applies each gradient by itself, so that staleness grows with the
workers. In the paper an update sums all gradients that came during the sum before it, so that the
batch grows. "{IN_NODES}" is nearer to that. Each node's workers sum theirs first, as Algorithm 2
does in line 3, with SSGD's times for so many.

{table(("figure", "paper", "here"), figures.beside_the_paper())}

## Figure 3, left: error with {scale.compared} workers

![error over seconds](pp-asgd-32-workers.svg)

## Figure 4a: error over time

The number of workers is in parentheses.

![error over seconds](pp-asgd-workers-errors.svg)

## Figure 4b: relative speed to {TARGET:.0%}

That of SSGD with {scale.workers[0]} workers is 1.

![relative speed over workers](pp-asgd-workers-speed.svg)

How many times as fast as SSGD, if a worker's step deviated by less or more:

{table(("workers", "method", *deviations), waits(figures))}

## Figure 4c: batch, staleness, updates

![batch, staleness and updates per second over workers](pp-asgd-workers-inside.svg)

{table(TITLES, figures.rows())}
"""
