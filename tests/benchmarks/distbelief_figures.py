"""DistBelief's figures 4 and 5 at the size of the digits, in virtual time.

Accuracy over time with 1, 20 and 200 replicas, and the time to a fixed accuracy over replicas and
over the cores that they keep busy. With `--output` a page with a table and pictures is left.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.line_chart import LineChart, Points
from builders.report import Bar, measured_version, median, print_report, say, told
from disttrain.job.spec import DistTrainJob
from disttrain.replay import final_values
from disttrain.replica import task_calls
from disttrain.simulation import runs as simulated
from disttrain.simulation.evaluations import Point, Result
from disttrain.simulation.machines import Machines
from disttrain.simulation.run import SimulatedRun
from disttrain.simulation.runs import AnyRun
from disttrain.simulation.setting import prepare
from disttrain.task.task import Split

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
BATCH, STEP_SECONDS, TARGET = 8, 0.1, 0.95
MACHINES = Machines(
    step_seconds=STEP_SECONDS, jitter=0.05, bytes_per_second=1.25e8, latency_seconds=0.0002
)
SGD, ADAGRAD, LBFGS = "Downpour with SGD", "Downpour with Adagrad", "Sandblaster L-BFGS"
OPTIMIZERS: Mapping[str, Sequence[dict[str, Any]]] = {
    SGD: [{"sgd": {"learningRate": rate}} for rate in (0.05, 0.01)],
    ADAGRAD: [{"adagrad": {"learningRate": 0.03, "initialAccumulator": 0.1}}],
    LBFGS: [{"lbfgs": {}}],
}
"""SGD's rate is the better of these for each number of replicas; Adagrad's is the same for all.
L-BFGS has none. A portion of its batch, which is all of the data, takes as long as a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How much is measured."""

    replicas: Sequence[int]
    """Of Downpour."""
    batch_replicas: Sequence[int]
    """Of L-BFGS."""
    shown: Sequence[tuple[str, int]]
    """Of these accuracy is drawn over time."""
    seeds: int
    epochs: int
    """Of Downpour."""
    batch_epochs: int
    """Of L-BFGS, which computes the batch once or more often for a step."""

    def replicas_of(self, name: str) -> Sequence[int]:
        return self.batch_replicas if name == LBFGS else self.replicas


FULL = Scale(
    replicas=(1, 5, 20, 50, 100, 200),
    batch_replicas=(1, 5, 20, 50, 100, 200, 500, 1000, 2000),
    shown=((SGD, 1), (SGD, 20), (ADAGRAD, 20), (ADAGRAD, 200), (LBFGS, 2000)),
    seeds=3,
    epochs=30,
    batch_epochs=200,
)
QUICK = Scale(
    replicas=(1, 4),
    batch_replicas=(1, 200),
    shown=((SGD, 1), (ADAGRAD, 4), (LBFGS, 200)),
    seeds=1,
    epochs=2,
    batch_epochs=3,
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run until the target; the curves are of accuracy over seconds."""

    rate: float | None
    result: Result
    on_test: Points
    on_training: Points

    @property
    def seconds(self) -> float:
        """NaN if the target was not met."""
        return self.result.seconds if self.result.target_met else math.nan

    @property
    def busy_cores(self) -> float:
        """A core for each replica that computes."""
        return self.result.replicas * self.result.computing


Found = Mapping[tuple[str, int], Sequence[Run]]
"""The seeds' runs by optimizer and replicas."""


def main() -> None:
    """Measure, print the report, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few epochs: that it runs")
    parser.add_argument("--output", type=Path, help="folder of the page, such as docs/methods")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    torch.set_num_threads(1)
    found = {
        (name, count): runs for name in OPTIMIZERS for count, runs in best(name, scale).items()
    }
    if options.output:
        write_page(options.output, found, scale)
    one = seconds(found[ADAGRAD, 1])
    quickest = min(seconds(found[ADAGRAD, count]) for count in scale.replicas)
    figures = [dict(zip(TITLES, row, strict=True)) for row in rows(found)]
    name = "seconds with Adagrad and the quickest number of replicas, ratio to one"
    bars = [Bar(name, quickest / one, 0.2, at_least=False)]
    print_report("distbelief_figures", {"runs": figures}, bars)


def best(name: str, scale: Scale) -> Mapping[int, Sequence[Run]]:
    """By number of replicas, the runs of all seeds with the rate whose median is the quickest."""
    counts = scale.replicas_of(name)
    candidates = [
        [list(runs_of(optimizer, counts, seed, scale)) for seed in range(scale.seeds)]
        for optimizer in OPTIMIZERS[name]
    ]
    found = {}
    for place, count in enumerate(counts):
        of_count = [[runs[place] for runs in seeds] for seeds in candidates]
        found[count] = min(of_count, key=lambda runs: (seconds(runs), -last_accuracy(runs)))
        rate = found[count][0].rate
        say(f"{name}, {count} replicas, rate {rate}: {seconds(found[count]):.3g} s")
    return found


def runs_of(
    optimizer: dict[str, Any], counts: Sequence[int], seed: int, scale: Scale
) -> Iterator[Run]:
    """One for each number of replicas, until the target or for so many epochs."""
    is_batch = optimizer.keys() == {"lbfgs"}
    whole_batches = {"optimizer": optimizer, "portionSize": BATCH, "pushEveryPortions": 1}
    strategy = (
        {"sandblaster": whole_batches} if is_batch else {"downpour": {"optimizer": optimizer}}
    )
    job = DistTrainJob.model_validate(
        {
            "apiVersion": "disttrain.dev/v1alpha1",
            "kind": "DistTrainJob",
            "metadata": {"name": "digits"},
            "spec": {
                "task": {"entrypoint": "digits:Digits"},
                "strategy": strategy,
                **({} if is_batch else {"batchSize": BATCH}),
                "seed": seed,
                "stop": {
                    "epochs": scale.batch_epochs if is_batch else scale.epochs,
                    "targetMetric": {"name": "accuracy", "atLeast": TARGET},
                },
                "parameterServer": {"shards": 2},
                "replicas": {"count": 1, "device": "cpu"},
            },
        }
    )
    setting = prepare(job, task_calls.load(job, DIGITS))
    make = simulated.maker(setting, MACHINES, setting.train_samples // 4)
    rate = next(iter(optimizer.values())).get("learningRate")
    known: dict[int, float] = {}
    for count in counts:
        # Of a batch method all runs have the same course, which is computed once.
        yield measured(make(count), rate, known if is_batch else {})


def measured(run: AnyRun, rate: float | None, known: dict[int, float]) -> Run:
    """Carry a run out. `known`: accuracy on the training data by samples."""
    on_training: list[tuple[float, float]] = [(0.0, 0.1)]

    def tell(point: Point) -> None:
        if point.samples not in known:
            values = run.values() if isinstance(run, SimulatedRun) else run.course.values()
            found = final_values.measure(run.setting, values, Split.TRAIN)
            known[point.samples] = found.measures["accuracy"]
        on_training.append((point.seconds, known[point.samples]))

    run.evaluations.tell = tell
    result = run.run()
    on_test = [(point.seconds, point.measured.measures["accuracy"]) for point in result.points]
    return Run(rate, result, [(0.0, 0.1), *on_test], on_training)


def seconds(runs: Sequence[Run]) -> float:
    """The median; infinite if it is of a run that was never there."""
    return median([run.seconds for run in runs])


def last_accuracy(runs: Sequence[Run]) -> float:
    return median([run.on_test[-1][1] for run in runs])


TITLES = (
    "optimizer",
    "replicas",
    "rate",
    "seconds",
    "samples",
    "staleness, median",
    "busy cores",
    "accuracy at the end",
)


def rows(found: Found) -> list[tuple[Any, ...]]:
    """Medians over the seeds, in the order of `TITLES`."""
    return [
        (
            name,
            count,
            runs[0].rate,
            seconds(runs),
            median([float(run.result.samples) for run in runs]),
            None
            if name == LBFGS
            else median([float(run.result.staleness_at(0.5)) for run in runs]),
            median([run.busy_cores for run in runs]),
            last_accuracy(runs),
        )
        for (name, count), runs in found.items()
    ]


def write_page(folder: Path, found: Found, scale: Scale) -> None:
    """distbelief.md with a table, and four pictures beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = {f"{name}, {count}": found[name, count] for name, count in scale.shown}
    over_time = LineChart(across="seconds", upwards="accuracy")
    for split in ("training", "test"):
        curves = {
            name: [run.on_training if split == "training" else run.on_test for run in runs]
            for name, runs in shown.items()
        }
        over_time.draw(folder / f"distbelief-{split}.svg", curves)
    for across, value in (
        ("replicas", lambda run: float(run.result.replicas)),
        ("busy cores", lambda run: run.busy_cores),
    ):
        lines: dict[str, Points] = {
            name: [
                (median([value(run) for run in found[name, count]]), seconds(found[name, count]))
                for count in scale.replicas_of(name)
                if math.isfinite(seconds(found[name, count]))
            ]
            for name in OPTIMIZERS
        }
        lines["frontier"] = frontier([point for line in lines.values() for point in line])
        file = f"distbelief-seconds-over-{across.replace(' ', '-')}.svg"
        chart = LineChart(
            across=across,
            upwards=f"seconds to {TARGET:.0%}",
            is_logarithmic=True,
            across_is_logarithmic=True,
        )
        chart.draw(folder / file, {name: [line] for name, line in lines.items()})
    (folder / "distbelief.md").write_text(page(found, scale))


def frontier(points: Points) -> Points:
    """Those that no other one beats in both, with fewer resources and in less time."""
    best: list[tuple[float, float]] = []
    for across, took in sorted(points):
        if not best or took < best[-1][1]:
            best.append((across, took))
    return best


def _or_blank(figure: float | None) -> str:
    return "" if figure is None else f"{figure:,g}"


def page(found: Found, scale: Scale) -> str:
    """The text of the page."""
    table = "\n".join(
        f"| {name} | {count} | {_or_blank(rate)} | {told(took, 1)} | {told(samples, 0)} "
        f"| {_or_blank(staleness)} | {told(busy, 1)} | {accuracy:.3f} |"
        for name, count, rate, took, samples, staleness, busy, accuracy in rows(found)
    )
    groups = found[LBFGS, scale.batch_replicas[0]][0].result.groups
    return f"""# DistBelief's figures 4 and 5, at our size

Written by `tests/benchmarks/distbelief_figures.py` at commit {measured_version()}: the digits of
`examples/digits` in virtual time, until {TARGET:.0%} of the test images are told apart or for
{scale.epochs} epochs, {scale.batch_epochs} of L-BFGS. A step of {BATCH} samples takes
{STEP_SECONDS:g} s and a core, every machine has 1 Gbit/s, two shards keep the parameters. Medians
over {scale.seeds} seeds. The rate of SGD is the better of two for each number of replicas, that of
Adagrad is the same for all. The batch of L-BFGS is all of the data, in portions of {BATCH} samples,
which take as long as a step.

| {" | ".join(TITLES)} |
|{"---|" * len(TITLES)}
{table}

## Figure 4: accuracy over time

On the training data, and on the test data:

![accuracy on the training data](distbelief-training.svg)

![accuracy on the test data](distbelief-test.svg)

## Figure 5: time to {TARGET:.0%}

Over the replicas, and over the cores that they keep busy. What is on the frontier no other run
beats in both:

![seconds over replicas](distbelief-seconds-over-replicas.svg)

![seconds over busy cores](distbelief-seconds-over-busy-cores.svg)

The paper has speech with 42 million parameters, and ImageNet. These are 1,437 images and 37,000
parameters, so a pass over the data is short beside the staleness of many replicas. What is of the
same kind is the order of the methods, not the numbers. A batch of 1,437 images makes {groups}
portions: more replicas of L-BFGS than that only compute copies of what others are at.
"""


if __name__ == "__main__":
    main()
