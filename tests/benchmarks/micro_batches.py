"""A model that is cut between layers, whose batches go through two partitions in slices.

Layers alone, forward and backward, with one thread for each process. One process with the whole
model, two such processes at once, and two partitions with each number of slices take turns. Ratios
are of one round, and beside other work those to two processes tell more. At most is what the order
of slices allows, M S / (M + S - 1) for M slices and S stages. `disttrain plan` is told the speed
that each round measures.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import gloo_processes
from builders.partition_speed import machine_here
from builders.report import Bar, print_report, say
from disttrain.parallel import Alone, Communicator, Grid, Partitioned, partition, pricing
from disttrain.parallel.counting import Counts, counted
from disttrain.parallel.ways import Way

STAGES = 2
SLICES = (1, 2, 4, 8)
CONVOLUTIONS = "eight convolutions"
ONE, APART = "one", "apart"
LEAST = 0.6
"""Of two processes; 8 slices allow 0.89."""


@dataclass(frozen=True, slots=True)
class Model:
    """What is measured. Its two halves compute as much."""

    make: Callable[[], nn.Sequential]
    sample: tuple[int, ...]
    batch: int

    @property
    def places(self) -> Mapping[str, Way]:
        layers = len(self.make())
        return {str(layer): STAGES * layer // layers for layer in range(layers)}


def convolutions() -> nn.Sequential:
    """Few weights, and many activations."""
    return nn.Sequential(*(nn.Conv2d(32, 32, 3, padding=1) for _ in range(8)))


def dense() -> nn.Sequential:
    """Many weights, whose gradients each slice adds up."""
    return nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))


def models(*, quick: bool) -> dict[str, Model]:
    return {
        CONVOLUTIONS: Model(convolutions, (32, 24, 24), 8 if quick else 64),
        "four dense layers": Model(dense, (1024,), 16 if quick else 768),
    }


def at_most(slices: int) -> float:
    return slices * STAGES / (slices + STAGES - 1)


@dataclass(frozen=True, slots=True)
class Job:
    """What each process does."""

    model: str
    quick: bool
    rounds: int

    @property
    def steps(self) -> int:
        return 1 if self.quick else 2


def work(jobs: Sequence[Job], peers: Communicator) -> list[list[dict[str, float]]]:
    """In a process of its own."""
    return [measured(job, peers) for job in jobs]


def measured(job: Job, peers: Communicator) -> list[dict[str, float]]:
    """Of each round, seconds of a step: of one process, of two beside each other, of slices."""
    model = models(quick=job.quick)[job.model]
    torch.manual_seed(0)
    whole, x = model.make(), torch.randn(model.batch, *model.sample)
    undivided = partition(whole, Grid(1, 1), Alone(), model.sample)
    divided = {each: part(model, each, peers) for each in SLICES}
    plans = {ONE: counts(model, Grid(1, 1), 1)}
    plans |= {f"{each}": counts(model, Grid(1, STAGES), each) for each in SLICES}
    found = []
    # The first round is slower, and counts only in the small form, which has no other.
    for number in range(0 if job.quick else -1, job.rounds):
        # In each round, as the speed of a shared machine is another one in the next.
        machine = machine_here(peers)
        round_ = {
            ONE: seconds(undivided, x, job.steps if peers.rank == 0 else 0, peers),
            APART: seconds(undivided, x, job.steps, peers),
            **{f"{each}": seconds(made, x, job.steps, peers) for each, made in divided.items()},
        }
        said = {name: pricing.step(each, machine).seconds for name, each in plans.items()}
        round_ |= {f"planned {name}": each for name, each in said.items()}
        if number >= 0:
            found.append(round_)
    return found


def part(model: Model, slices: int, peers: Communicator) -> Partitioned:
    grid, whole = Grid(1, STAGES), model.make()
    return partition(whole, grid, peers, model.sample, model.places, micro_batches=slices)


def counts(model: Model, grid: Grid, slices: int) -> Counts:
    return counted(
        model.make(),
        grid,
        model.sample,
        model.batch,
        model.places if grid.size > 1 else None,
        from_first=True,
        micro_batches=slices,
    )


def seconds(made: Partitioned, x: Tensor, steps: int, peers: Communicator) -> float:
    """Of a step: from when all begin until this process is through."""
    peers.sum(torch.zeros(1))
    began = time.perf_counter()
    for _ in range(steps):
        given = made.no_input(len(x), x.dtype) if made.peers.rank else x
        made.from_first(given).square().sum().backward()  # type: ignore[no-untyped-call]
    return (time.perf_counter() - began) / max(1, steps)


def rows(name: str, ranks: Sequence[Sequence[Mapping[str, float]]]) -> list[dict[str, Any]]:
    """For each number of slices; medians over rounds."""
    found = []
    for slices in SLICES:
        figures = []
        for first, second in zip(*ranks, strict=True):
            took = max(first[f"{slices}"], second[f"{slices}"])
            apart = 1 / (1 / first[APART] + 1 / second[APART])
            planned = first[f"planned {ONE}"] / first[f"planned {slices}"]
            figures.append((first[ONE] / took, apart / took, planned))
        measured, of_two, planned = map(statistics.median, zip(*figures, strict=True))
        found.append(
            {
                "model": name,
                "slices": slices,
                "times_one_process": measured,
                "of_two_processes": of_two,
                "planned_times_one_process": planned,
                "at_most": at_most(slices),
            }
        )
    return found


def main() -> None:
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small batches: that it runs")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", choices=models(quick=True), help="the model with this name alone")
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    found: list[dict[str, Any]] = []
    names = [name for name in models(quick=options.quick) if options.only in {None, name}]
    rounds = 1 if options.quick else options.rounds
    jobs = [Job(name, options.quick, rounds) for name in names]
    # Processes take longer to start than small models to run.
    for together in [jobs] if options.quick else [[job] for job in jobs]:
        ranks = gloo_processes.results(STAGES, work, together)
        for job, *of_ranks in zip(together, *ranks, strict=True):
            found += rows(job.model, of_ranks)
            say(str(found[-len(SLICES) :]))
    best = [each["of_two_processes"] for each in found if each["model"] == CONVOLUTIONS]
    said = f"{CONVOLUTIONS}: two partitions, of two processes"
    bars = [Bar(said, max(best), LEAST)] if best else []
    print_report("micro_batches", {"rows": found}, bars)


if __name__ == "__main__":
    main()
