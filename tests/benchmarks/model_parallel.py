"""Models divided over processes: layers alone, forward and backward, no shards or coordinator.

On the CPU: one process, two partitions of one thread each, and two independent processes on the
same cores, whose samples per second are added. They take turns, and ratios are of one round. With
`--device cuda`: a network of locally connected layers with 1.6 billion parameters (Coates et al.
2013, section 5.2) in 1, 2 and 4 partitions, which are processes that share one GPU.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "cifar10"))

from builders import gloo_processes
from builders.paper_networks import autoencoder, billions, small_image, speech
from builders.partition_speed import machine_here
from builders.report import Bar, print_report, say
from cifar10 import cifar_network
from disttrain.parallel import (
    Alone,
    Communicator,
    Grid,
    Partitioned,
    partition,
    pricing,
    reconstruction_losses,
)
from disttrain.parallel.counting import Counts, Loss, counted
from disttrain.parallel.layers.partitioned import PartitionedLayer

H100_FLOPS = {"float32": 67e12, "bfloat16": 989e12}
"""Of the dense units: NVIDIA's data sheet of the H100 SXM."""


@dataclass(frozen=True, slots=True)
class Model:
    """What is measured."""

    make: Callable[[], nn.Sequential]
    sample: tuple[int, ...]
    classes: int
    batch: int
    grids: Sequence[tuple[int, int]] = ()
    loss: Loss = Loss.OF_OUTPUT


def cifar() -> nn.Sequential:
    """The example's, behind what makes numbers of its bytes."""
    network = cifar_network(channels_last=False)
    assert isinstance(network, nn.Sequential)
    return network[1:]


def small_speech() -> nn.Sequential:
    return speech(width=64)


def two_stacks() -> nn.Sequential:
    """Of the joint update of Coates et al. 2013, at a small size."""
    return autoencoder(52, 4, stacks=2)


def on_cpu(*, quick: bool) -> dict[str, Model]:
    batch = 4 if quick else 96
    return {
        "CIFAR-10 network": Model(cifar, (3, 32, 32), 10, batch),
        "local image model": Model(small_image, (3, 64, 64), 100, batch),
        "speech model": Model(small_speech if quick else speech, (11 * 40,), 8192, batch),
        "autoencoder": Model(two_stacks, (3, 52, 52), 1, batch, loss=Loss.OF_STACKS),
    }


def on_gpu(size: int) -> dict[str, Model]:
    grids = ((1, 1), (1, 2), (2, 2))
    return {"locally connected": Model(lambda: billions(size), (3, size, size), 10, 96, grids)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What each process does."""

    model: str
    quick: bool
    device: str
    precision: str
    size: int
    steps: int
    grid: tuple[int, int]
    rounds: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What one process measured."""

    parameters: int
    samples_per_second: float
    messages: float
    nbytes: float
    """Per step."""
    losses: Sequence[float]


def work(jobs: Sequence[Job], peers: Communicator) -> list[Any]:
    """In a process of its own."""
    return [of_job(job, peers) for job in jobs]


def of_job(job: Job, peers: Communicator) -> Any:
    model = (on_gpu(job.size) if job.device == "cuda" else on_cpu(quick=job.quick))[job.model]
    return (measured if job.device == "cuda" else in_turn)(model, job, peers)


def part(model: Model, grid: Grid, peers: Communicator, device: str) -> Partitioned:
    """Initialised without anybody's holding the whole model."""
    with torch.device("meta"):
        whole = model.make()
    made = partition(whole, grid, peers, model.sample).to_empty(device=device)
    torch.manual_seed(peers.rank)
    for layer in made.modules():
        if isinstance(layer, PartitionedLayer):
            for parameter in layer.parameters():
                initialise(parameter, is_tied=layer.is_tied)
    for layer in made.modules():
        if isinstance(layer, PartitionedLayer) and layer.is_tied:
            for parameter in layer.parameters():
                # The same values in all partitions.
                parameter.data.copy_(peers.sum(parameter.data) / peers.size)
    return made


def initialise(parameter: nn.Parameter, *, is_tied: bool) -> None:
    if parameter.dim() < 2:
        nn.init.constant_(parameter, 0.0 if parameter.dim() else 1.0)
        return
    # Filters of their own for each place have their inputs in the last dimension.
    fan_in = parameter[0].numel() if is_tied else parameter.shape[-1]
    nn.init.normal_(parameter, std=fan_in**-0.5)


@dataclass(frozen=True, slots=True)
class Training:
    """One model and what it learns from."""

    made: Partitioned
    optimizer: torch.optim.Optimizer
    x: torch.Tensor
    labels: torch.Tensor
    loss: Loss
    precision: str = "float32"

    @classmethod
    def of(cls, made: Partitioned, model: Model, job: Job) -> "Training":
        torch.manual_seed(0)
        x = torch.randn(model.batch, *model.sample).to(job.device)
        labels = torch.randint(0, model.classes, (model.batch,)).to(job.device)
        optimizer = torch.optim.SGD(made.parameters(), lr=0.001)
        return cls(made, optimizer, x, labels, model.loss, job.precision)

    def step(self) -> float:
        is_half = self.precision == "bfloat16"
        with torch.autocast(self.x.device.type, torch.bfloat16, enabled=is_half):
            loss = self._forward()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return float(loss.detach())

    def _forward(self) -> torch.Tensor:
        if self.loss is Loss.OF_STACKS:
            return torch.stack(reconstruction_losses(self.made, self.x)).sum()
        return functional.cross_entropy(self.made(self.x).float(), self.labels)


def in_turn(model: Model, job: Job, peers: Communicator) -> list[dict[str, float]]:
    """Seconds of a step in each round: of one process, of two partitions, of two processes.

    One after the other in the same processes, since a shared machine is faster and slower.
    """
    plans = counts(model)
    whole = Training.of(part(model, Grid(1, 1), Alone(), job.device), model, job)
    divided = Training.of(part(model, Grid(*job.grid), peers, job.device), model, job)
    found = []
    # The first round is slower, and counts only in the small form, which has no other.
    for number in range(0 if job.quick else -1, job.rounds):
        # In each round, as the speed of a shared machine is another one in the next.
        machine = machine_here(peers)
        said = {name: pricing.step(each, machine).seconds for name, each in plans.items()}
        seconds = {}
        exposed = {}
        for name, training, works in (
            ("one", whole, peers.rank == 0),
            ("waiting", divided, True),
            ("divided", divided, True),
            ("apart", whole, True),
        ):
            peers.sum(torch.zeros(1))
            peers.overlaps = name != "waiting"
            before, began = asdict(peers.traffic), time.perf_counter()
            for _ in range(job.steps if works else 0):
                training.step()
            seconds[name] = (time.perf_counter() - began) / job.steps
            after = asdict(peers.traffic)
            exposed[name] = {key: (after[key] - before[key]) / job.steps for key in after}
        if number >= 0:
            waited = exposed["waiting"]["exposed_seconds"]
            found.append({**seconds, **exposed["divided"], "waited_seconds": waited, **said})
    return found


def measured(model: Model, job: Job, peers: Communicator) -> dict[str, Any]:
    made = part(model, Grid(*job.grid), peers, job.device)
    training = Training.of(made, model, job)
    times, losses = [], []
    before = asdict(peers.traffic)
    for step in range(-2, job.steps):
        if step == 0:
            before = asdict(peers.traffic)
        peers.sum(torch.zeros(1))
        began = time.perf_counter()
        losses.append(training.step())
        peers.sum(torch.zeros(1))
        if step >= 0:
            times.append(time.perf_counter() - began)
    sent = {
        name: (value - before[name]) / job.steps for name, value in asdict(peers.traffic).items()
    }
    run = Run(
        parameters=sum(parameter.numel() for parameter in made.parameters()),
        samples_per_second=model.batch / statistics.median(times),
        messages=sent["messages"],
        nbytes=sent["nbytes"],
        losses=losses,
    )
    return asdict(run)


def run(*jobs: Job) -> list[list[Any]]:
    """What all processes measured, of each of the jobs. They have the same grid."""
    rows, columns = jobs[0].grid
    found = gloo_processes.results(rows * columns, work, jobs)
    return [list(of_one) for of_one in zip(*found, strict=True)]


def row(job: Job, runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "model": job.model,
        "processes": len(runs),
        "precision": job.precision,
        "parameters": sum(each.parameters for each in runs),
        "samples_per_second": max(each.samples_per_second for each in runs),
        "messages_per_step": sum(each.messages for each in runs),
        "bytes_per_step": sum(each.nbytes for each in runs),
        "first_and_last_loss": [runs[0].losses[0], runs[0].losses[-1]],
    }


def compared(name: str, batch: int, ranks: Sequence[Sequence[dict[str, float]]]) -> dict[str, Any]:
    """Medians over rounds, of which each has all contenders."""
    rounds = []
    for both in zip(*ranks, strict=True):
        one = batch / both[0]["one"]
        divided = batch / max(each["divided"] for each in both)
        apart = sum(batch / each["apart"] for each in both)
        rounds.append(
            {
                "samples_per_second_of_one": one,
                "samples_per_second_divided": divided,
                "samples_per_second_apart": apart,
                "speed_up": divided / one,
                "of_two_processes": divided / apart,
                "samples_per_second_without_overlap": batch / max(e["waiting"] for e in both),
                "exposed_milliseconds": 1e3 * sum(e["exposed_seconds"] for e in both) / 2,
                "exposed_without_overlap": 1e3 * sum(e["waited_seconds"] for e in both) / 2,
                "planned_of_measured_seconds_of_one": both[0]["planned_seconds_of_one"]
                / both[0]["one"],
                "planned_of_measured_seconds": both[0]["planned_seconds"]
                / max(each["divided"] for each in both),
                "planned_speed_up": both[0]["planned_seconds_of_one"] / both[0]["planned_seconds"],
                "messages_per_step": sum(each["messages"] for each in both),
                "bytes_per_step": sum(each["nbytes"] for each in both),
            }
        )
    medians = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
    return {"model": name, **medians}


def counts(model: Model) -> dict[str, Counts]:
    """Of one process and of two partitions."""
    with torch.device("meta"):
        made = model.make()
    grids = {"planned_seconds_of_one": Grid(1, 1), "planned_seconds": Grid(1, 2)}
    return {
        name: counted(made, grid, model.sample, model.batch, loss=model.loss)
        for name, grid in grids.items()
    }


def main() -> None:
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small batches, one step: that it runs"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", type=int, default=200, help="rows of an image, on a GPU")
    names = on_cpu(quick=True)
    parser.add_argument("--only", choices=names, help="the CPU's network with this name alone")
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        # All that is compared, and gloo's threads with it, has the same two cores.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    rows, bars = (gpu_rows if options.device == "cuda" else cpu_rows)(options)
    print_report("model_parallel", {"rows": rows}, bars)


def cpu_rows(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Bar]]:
    rows, bars = [], []
    bounds = {"CIFAR-10 network": 0.85, "local image model": 0.85, "speech model": 0.7}
    models = on_cpu(quick=options.quick)
    jobs = [cpu_job(name, options) for name in models if options.only in {None, name}]
    # Processes take longer to start than small networks to run. Large ones have theirs for
    # themselves, so that none is measured in memory that another one has left.
    together = [jobs] if options.quick else [[job] for job in jobs]
    for job, found in chain.from_iterable(zip(some, run(*some), strict=True) for some in together):
        rows.append(compared(job.model, models[job.model].batch, found))
        if job.model in bounds:
            reached = rows[-1]["of_two_processes"]
            name = f"{job.model}: two partitions, of two processes"
            bars.append(Bar(name, reached, bounds[job.model]))
        say(str(rows[-1]))
    return rows, bars


def cpu_job(name: str, options: argparse.Namespace) -> Job:
    return Job(
        model=name,
        quick=options.quick,
        device="cpu",
        precision="float32",
        size=options.size,
        steps=1 if options.quick else 5,
        rounds=1 if options.quick else 9,
        grid=(1, 2),
    )


def gpu_rows(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Bar]]:
    rows: list[dict[str, Any]] = []
    for name, model in on_gpu(options.size).items():
        for precision, peak in H100_FLOPS.items():
            for grid in model.grids:
                job = Job(
                    model=name,
                    quick=options.quick,
                    device="cuda",
                    precision=precision,
                    size=options.size,
                    steps=5,
                    grid=grid,
                )
                found = row(job, [Run(**each) for each in run(job)[0]])
                # Forward, and the gradients of inputs and of weights.
                flops = 6.0 * found["parameters"] * found["samples_per_second"]
                rows.append({**found, "tera_flops": flops / 1e12, "of_the_peak": flops / peak})
                say(str(rows[-1]))
    return rows, []


if __name__ == "__main__":
    main()
