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

SYNCHRONOUS, ASGD, PREDICTED = "SSGD", "ASGD", "PP-ASGD"
EARLY, REACHED, FAR = 7, 0.3, 0.4
"""An epoch at which errors are told, and errors whose time is told."""

Named = Mapping[tuple[str, int], Sequence[Outcome]]
"""The seeds' runs by method and staleness."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How much is measured."""

    staleness: Sequence[int]
    seeds: int
    epochs: int
    batch: int
    """Samples of a gradient."""
    rates: Sequence[float]
    measured_after: float
    """Epochs before figure 3 is measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What was measured."""

    scale: Scale
    over_epochs: Named
    prediction: Sequence[Curve]

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


def error_at(run: Outcome, epoch: float) -> float:
    """The latest until then; that of guessing where the run came to no numbers."""
    errors = [error for at, _, error in run.points if at <= epoch + 0.01]
    in_time = 2 * min(epoch, run.case.epochs)
    return errors[-1] if len(errors) >= in_time else 0.9


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
    (folder / "pp-asgd.md").write_text(page(figures))


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
"""
