"""PP-ASGD's figures 2 and 3 (right) with CIFAR-10, in virtual time (Sato et al. 2017).

Figure 2: error over epochs with gradients that are 3, 9 and 27 updates old. Figure 3: how far the
prediction is from what comes. A GPU is used where there is one: the runs take hours without.
With `--output` a page is written. `pp_asgd_workers.py` has figures 3 (left) and 4.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import cifar_runs, pp_asgd_page, prediction_errors
from builders.cifar_runs import Case, Data, Outcome
from builders.pp_asgd_page import ASGD, PREDICTED, SYNCHRONOUS, Figures, Scale
from builders.report import Bar, print_report

SAMPLES = Path(__file__).resolve().parents[2] / "examples" / "data"
FULL = Scale(
    staleness=(3, 9, 27),
    seeds=3,
    epochs=15,
    batch=100,
    rates=(0.00003, 0.0001, 0.0003, 0.001, 0.003),
    measured_after=1.0,
)
QUICK = Scale(
    staleness=(3,),
    seeds=1,
    epochs=1,
    batch=20,
    rates=(0.0003,),
    measured_after=0.1,
)
EQUAL = {"step_seconds": 1.0, "latency_seconds": 0.0, "evenly": True}
"""Every gradient is as old as any other: staleness made artificially, as the paper's."""


def main() -> None:
    """Measure, print the report, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a part of an epoch: that it runs")
    parser.add_argument("--output", type=Path, help="folder of the page, such as docs/methods")
    parser.add_argument("--results", type=Path, help="file of runs, to go on with later")
    parser.add_argument("--train", type=Path, default=SAMPLES / "cifar10-sample-train.parquet")
    parser.add_argument("--test", type=Path, default=SAMPLES / "cifar10-sample-test.parquet")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--figures", default="2,3", help="which of 2,3")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    data = Data(train=options.train.absolute(), test=options.test.absolute())
    torch.set_num_threads(1)
    chosen = set(options.figures.split(","))
    with tempfile.TemporaryDirectory() as folder:
        results = options.results or Path(folder, "runs.jsonl")
        measure = Measuring(scale, data, results, options.processes)
        figures = Figures(
            scale=scale,
            over_epochs=measure.figure_2() if "2" in chosen else {},
            prediction=measure.figure_3() if "3" in chosen else (),
        )
    if options.output:
        pp_asgd_page.write(options.output, figures)
    print_report("pp_asgd_figures", {"rows": figures.rows()}, bars(figures))


def bars(figures: Figures) -> list[Bar]:
    """What the paper says, as ratios."""
    found = []
    for curve in figures.prediction:
        lengths = curve.distances
        least = min(range(len(lengths)), key=lengths.__getitem__)
        found += [
            Bar(f"least error at S, seed {curve.seed}, of S0 = {curve.staleness}", least, 6.0),
            Bar(f"error at S0 by none, seed {curve.seed}", curve.ratio, 0.6, at_least=False),
        ]
    return found


class Measuring:
    """Chooses each method's rate with the first seed, and then runs the others with it."""

    def __init__(self, scale: Scale, data: Data, results: Path, processes: int) -> None:
        self.scale = scale
        self.data = data
        self._results = results
        self._processes = processes

    def figure_2(self) -> Mapping[tuple[str, int], Sequence[Outcome]]:
        """By method and staleness; synchronous SGD has none."""
        names = [(SYNCHRONOUS, 0)]
        names += [(name, age) for age in self.scale.staleness for name in (ASGD, PREDICTED)]
        return self._best({name: self._stale(*name) for name in names}, self.scale.seeds)

    def figure_3(self) -> Sequence[prediction_errors.Curve]:
        """The distance between prediction and what came, by how far was predicted."""
        rate = sorted(self.scale.rates)[len(self.scale.rates) // 2]
        return [
            prediction_errors.measured(
                Case(
                    replicas=8,
                    predicts=True,
                    batch=self.scale.batch,
                    rate=rate,
                    seed=seed,
                    epochs=2,
                    shards=1,
                    machines=EQUAL,
                ),
                replace(self.data, test=SAMPLES / "cifar10-sample-test.parquet"),
                after_epochs=self.scale.measured_after,
                kept=self._results.with_suffix(".distances.jsonl"),
            )
            for seed in range(self.scale.seeds)
        ]

    def _best(
        self, candidates: Mapping[tuple[str, int], Sequence[Case]], seeds: int
    ) -> Mapping[tuple[str, int], Sequence[Outcome]]:
        flat = [case for cases in candidates.values() for case in cases]
        outcomes = iter(self._measure(flat))
        chosen = {}
        for name, cases in candidates.items():
            runs = [next(outcomes) for _ in cases]
            chosen[name] = min(runs, key=error_over_time).case
        repeated = [replace(case, seed=seed) for case in chosen.values() for seed in range(seeds)]
        found = iter(self._measure(repeated))
        return {name: [next(found) for _ in range(seeds)] for name in chosen}

    def _measure(self, cases: Sequence[Case]) -> Sequence[Outcome]:
        return cifar_runs.measure(cases, self.data, self._results, self._processes)

    def _stale(self, method: str, staleness: int) -> Sequence[Case]:
        return [
            Case(
                replicas=staleness + 1,
                predicts=method != ASGD,
                batch=self.scale.batch,
                rate=rate,
                seed=0,
                epochs=self.scale.epochs,
                shards=1,
                machines=EQUAL,
            )
            for rate in self.scale.rates
        ]


def error_over_time(outcome: Outcome) -> float:
    """Its mean over all evaluations: low where training is fast and ends well."""
    errors = [error for _, _, error in outcome.points]
    missing = 2 * outcome.case.epochs - len(errors)
    return (sum(errors) + 0.9 * max(0, missing)) / max(len(errors), 2 * outcome.case.epochs)


if __name__ == "__main__":
    main()
