"""PP-ASGD's figures 3 (left) and 4 with small images, in virtual time (Sato et al. 2017).

Figure 3: errors of predicted and plain asynchronous SGD on 32 workers. Figure 4: synchronous and
predicted SGD on 8 to 256. With `--output` a page is written. Two cores take twenty minutes.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import cifar_runs, pp_asgd_workers_page
from builders.cifar_runs import Case, Data, Outcome
from builders.pp_asgd_page import ASGD, PREDICTED, SYNCHRONOUS
from builders.pp_asgd_workers_page import (
    IN_NODES,
    NODES,
    TARGET,
    UNEVEN,
    Figures,
    Found,
    Method,
    Scale,
    seconds_to,
    step_seconds,
)
from builders.report import Bar, median, print_report, say

FULL = Scale(workers=(8, 32, 128, 256), compared=32, seeds=3, batch=4, epochs=2.0, until=0.58)
QUICK = Scale(workers=(2,), compared=2, seeds=1, batch=20, epochs=1.0, until=0.85)
FACTORS: Mapping[str, Sequence[float]] = {
    SYNCHRONOUS: (1 / 3, 1.0, 3.0, 10.0),
    ASGD: (1 / 3, 1.0, 3.0),
    PREDICTED: (1.0, 3.0),
    IN_NODES: (1.0, 3.0),
}
"""Rates that are tried, times 0.003 over S + 1, where S is the staleness to be expected."""
LONGER = {SYNCHRONOUS: 4, ASGD: 1, PREDICTED: 1, IN_NODES: 2}
"""So many times the epochs of the scale: these have fewer updates in one, and take less to run."""


def main() -> None:
    """Measure, print the report, and write the page."""
    parser = cifar_runs.options(__doc__, quick="two workers: that it runs")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    data = Data(
        train=options.train.absolute(),
        test=options.test.absolute(),
        device="cpu",
        task=cifar_runs.SMALL,
    )
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        results = options.results or Path(folder, "runs.jsonl")
        figures = Figures(scale, measure(scale, data, results, options.processes))
    if options.output:
        pp_asgd_workers_page.write(options.output, figures)
    for line in figures.beside_the_paper():
        say(" | ".join(line))
    print_report("pp_asgd_workers", figures.report(), bars(figures))


def bars(figures: Figures) -> list[Bar]:
    """What the paper says, as ratios of medians."""
    scale = figures.scale
    found = [
        Bar(
            f"{scale.compared} workers, seconds to {TARGET:.0%}, ASGD to PP-ASGD",
            figures.times_as_fast(PREDICTED, ASGD, scale.compared),
            1.2,
        )
    ]
    for workers in scale.workers:
        name = PREDICTED if workers <= NODES else IN_NODES
        ratio = figures.times_as_fast(name, SYNCHRONOUS, workers)
        found.append(Bar(f"{workers} workers, seconds to {TARGET:.0%}, SSGD to {name}", ratio, 1.0))
    return found


def measure(scale: Scale, data: Data, results: Path, processes: int) -> Found:
    """Chooses each method's rate with the first seed, and then runs the others with it."""
    names: list[Method] = [(ASGD, scale.compared)]
    for workers in scale.workers:
        names += [(SYNCHRONOUS, workers), (PREDICTED, workers)]
        names += [(IN_NODES, workers)] if workers > NODES else []
    candidates = {name: cases(scale, *name) for name in names}
    flat = [case for several in candidates.values() for case in several]
    outcomes = iter(cifar_runs.measure(flat, data, results, processes))
    chosen = {name: quickest([next(outcomes) for _ in candidates[name]]) for name in names}
    repeated = [replace(chosen[name], seed=seed) for name in names for seed in range(scale.seeds)]
    found = iter(cifar_runs.measure(repeated, data, results, processes))
    return {name: [next(found) for _ in range(scale.seeds)] for name in names}


def quickest(outcomes: Sequence[Outcome]) -> Case:
    """The one that is first at the target, or else ends with the least error."""
    return min(outcomes, key=lambda run: (median([seconds_to(run)]), last_error(run))).case


def last_error(run: Outcome) -> float:
    return run.points[-1][2] if run.points else 1.0


def cases(scale: Scale, method: str, workers: int) -> Sequence[Case]:
    """One for each rate."""
    replicas = {SYNCHRONOUS: 1, IN_NODES: NODES}.get(method, workers)
    each = workers // replicas
    machines = {"step_seconds": step_seconds(each), **({} if replicas == 1 else UNEVEN)}
    return [
        Case(
            replicas=replicas,
            predicts=method != ASGD,
            batch=scale.batch * each,
            rate=float(f"{0.003 / replicas * factor:.2g}"),
            seed=0,
            epochs=round(scale.epochs * LONGER[method]),
            shards=1,
            machines=machines,
            growing_epochs=0.2,
            until=scale.until,
            evaluations=20,
        )
        for factor in FACTORS[method]
    ]


if __name__ == "__main__":
    main()
