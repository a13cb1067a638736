"""The page with PP-ASGD's figures: a table for each, and pictures beside it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders.cifar_runs import Outcome
from builders.line_chart import LineChart, Points
from builders.prediction_errors import Curve
from builders.report import measured_version, median, told
from disttrain.parallel.pricing import slowest_of

SYNCHRONOUS, ASGD, PREDICTED = "SSGD", "ASGD", "PP-ASGD"
EARLY, REACHED, FAR = 7, 0.3, 0.4
"""An epoch at which errors are told, and errors whose time is told."""

Named = Mapping[tuple[str, int], Sequence[Outcome]]
"""The seeds' runs by method and staleness, or workers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How much is measured."""

    staleness: Sequence[int]
    workers: Sequence[int]
    seeds: int
    epochs: int
    batch: int
    """Samples of a gradient in figures 2 and 3."""
    worker_batch: int
    """Samples of a worker's gradient in figure 4."""
    rates: Sequence[float]
    worker_seeds: int
    worker_epochs: int
    """Of PP-ASGD; twice as many of the synchronous one."""
    worker_rates: Sequence[float]
    """Of PP-ASGD in figure 4, where many small gradients are applied one by one."""
    measured_after: float
    """Epochs before figure 3 is measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What was measured."""

    scale: Scale
    over_epochs: Named
    prediction: Sequence[Curve]
    over_workers: Named

    def rows(self) -> dict[str, Any]:
        """All tables, as JSON wants them."""
        return {
            "figure 2": [dict(zip(STALE, row, strict=True)) for row in stale(self.over_epochs)],
            "figure 3": [
                {
                    "seed": curve.seed,
                    "staleness": curve.staleness,
                    "distances": list(curve.distances),
                    "unpredicted": curve.unpredicted,
                    "ratio": curve.ratio,
                }
                for curve in self.prediction
            ],
            "figure 4": [
                dict(zip(WORKERS, row, strict=True)) for row in on_workers(self.over_workers)
            ],
        }


STALE = (
    "method",
    "staleness",
    "rate",
    f"error after {EARLY} epochs",
    "last error",
    f"epochs to {FAR:.0%}",
    f"epochs to {REACHED:.0%}",
)
WORKERS = (
    "method",
    "workers",
    "rate",
    "mean staleness",
    f"seconds to {FAR:.0%}",
    f"epochs to {FAR:.0%}",
    "last error",
)


def stale(found: Named) -> list[tuple[Any, ...]]:
    """Medians over the seeds, in the order of `STALE`."""
    return [
        (
            method,
            age,
            runs[0].case.rate,
            median([error_at(run, EARLY) for run in runs]),
            median([error_at(run, math.inf) for run in runs]),
            median([run.first(FAR) for run in runs]),
            median([run.first(REACHED) for run in runs]),
        )
        for (method, age), runs in found.items()
    ]


def on_workers(found: Named) -> list[tuple[Any, ...]]:
    """Medians over the seeds, in the order of `WORKERS`."""
    return [
        (
            method,
            workers,
            runs[0].case.rate,
            median([run.staleness for run in runs]),
            median([seconds_to(run, method, workers) for run in runs]),
            median([run.first(FAR) for run in runs]),
            median([error_at(run, math.inf) for run in runs]),
        )
        for (method, workers), runs in found.items()
    ]


def error_at(run: Outcome, epoch: float) -> float:
    """The latest until then; that of guessing where the run came to no numbers."""
    errors = [error for at, _, error in run.points if at <= epoch + 0.01]
    in_time = 2 * min(epoch, run.case.epochs)
    return errors[-1] if len(errors) >= in_time else 0.9


def seconds_to(run: Outcome, method: str, workers: int) -> float:
    """Of virtual time. A synchronous step waits for the slowest worker and the sum of all."""
    return run.first(FAR, by=1) * (waiting(workers) if method == SYNCHRONOUS else 1.0)


def waiting(workers: int) -> float:
    """Seconds of a step in which all wait for each other, where one takes 1 s by itself.

    The slowest of so many normal ones with a deviation of 0.1 s (Blom 1958), and a ring over
    1.25 GB/s that sums 1.45 MB, with two messages for each worker.
    """
    slowest = 1.0 + 0.1 * slowest_of(workers)
    ring = 2 * (workers - 1) / workers * 1.45e6 / 1.25e9 + 2 * (workers - 1) * 0.0002
    return slowest + ring


def write(folder: Path, figures: Figures) -> None:
    """pp-asgd.md, and the pictures beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for age in figures.scale.staleness:
        shown = {
            name if name == SYNCHRONOUS else f"{name}, S = {age}": [
                [(epoch, error) for epoch, _, error in run.points] for run in runs
            ]
            for (name, of), runs in figures.over_epochs.items()
            if of in {age, 0}
        }
        chart = LineChart(across="epochs", upwards="error on the test data")
        chart.draw(folder / f"pp-asgd-staleness-{age}.svg", shown)
    distances: dict[str, Sequence[Points]] = {
        "norm(w(t + S0 + 1) - f_S(w_t))": [
            [(float(ahead), distance) for ahead, distance in enumerate(curve.distances)]
            for curve in figures.prediction
        ],
        "norm(w(t + S0 + 1) - w_t)": [
            [(0.0, curve.unpredicted), (13.0, curve.unpredicted)] for curve in figures.prediction
        ],
    }
    LineChart(across="S", upwards="norm").draw(folder / "pp-asgd-prediction.svg", distances)
    if figures.over_workers:
        draw_workers(folder / "pp-asgd-workers.svg", figures)
    (folder / "pp-asgd.md").write_text(page(figures))


def draw_workers(path: Path, figures: Figures) -> None:
    """Figure 4, middle: how long the workers take together."""
    lines = {
        method: [
            [
                (workers, median([seconds_to(run, method, workers) for run in runs]))
                for (name, workers), runs in figures.over_workers.items()
                if name == method
            ]
        ]
        for method in (SYNCHRONOUS, PREDICTED)
    }
    met = {
        name: [[point for point in run if math.isfinite(point[1])] for run in runs]
        for name, runs in lines.items()
    }
    chart = LineChart(across="workers", upwards=f"seconds to an error of {FAR:.0%}")
    chart.draw(path, met)


def table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """In Markdown."""
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += ["| " + " | ".join(shown(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def shown(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:g}" if 0 < value < 0.01 else told(value, 3 if value < 1 else 1)


def page(figures: Figures) -> str:
    """The text of the page."""
    scale = figures.scale
    prediction = table(
        ("seed", "S0", "least at S", "what is left of the distance at S0"),
        [
            (
                curve.seed,
                curve.staleness,
                min(range(len(curve.distances)), key=curve.distances.__getitem__),
                curve.ratio,
            )
            for curve in figures.prediction
        ],
    )
    pictures = "\n\n".join(
        f"![error with S = {age}](pp-asgd-staleness-{age}.svg)" for age in scale.staleness
    )
    return f"""# PP-ASGD's figures, at our size

Written by `tests/benchmarks/pp_asgd_figures.py` at commit {measured_version()}: CIFAR-10 in
virtual time, the network of `examples/cifar10` (CCPCPCPFFF as in the paper, whose widths are
ours), momentum 0.99, no augmentation. The rate grows over the first epoch and stays. Each method
has the best of the rates {", ".join(f"{rate:g}" for rate in scale.rates)} by its mean error over
the run with the first seed. SSGD is Algorithm 4, which is a prediction with S = 0.

## Figure 1: gradients side by side

`disttrain timeline DIR --plot FILE.svg` draws it from the log of a shard, of any run:
[a run of the digits with four replicas](../runs.md#disttrain-timeline-dir).

## Figure 2: error over epochs

Gradients of {scale.batch} samples, {scale.epochs} epochs, medians over {scale.seeds} seeds. All
gradients are equally old.

{table(STALE, stale(figures.over_epochs))}

{pictures}

## Figure 3, right: how good the prediction is

Means of 100 measurements after the first epoch, 8 replicas, so that gradients are 7 updates old.

{prediction}

![distance over S](pp-asgd-prediction.svg)

{on_many_workers(figures)}"""


def on_many_workers(figures: Figures) -> str:
    """The section about figure 4; nothing if it was not measured."""
    if not figures.over_workers:
        return ""
    scale = figures.scale
    return f"""
## Figure 4: more and more workers

Gradients of {scale.worker_batch} samples that take a worker 1 s, with a deviation of 0.1 s.
Medians over {scale.worker_seeds} seeds. PP-ASGD is Downpour with four shards, which apply each
gradient by itself; its rates are {", ".join(f"{rate:g}" for rate in scale.worker_rates)}. SSGD sums
the gradients of all; its step takes as long as the slowest worker's and a sum over a ring of 10
Gbit/s.

{table(WORKERS, on_workers(figures.over_workers))}

![seconds over workers](pp-asgd-workers.svg)
"""
