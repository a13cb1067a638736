"""Models divided over processes: layers alone, forward and backward, no shards or coordinator.

On the CPU: one and two partitions of one thread each, beside two independent processes on the same
cores, whose samples per second are added. With `--device cuda`: a network of locally connected
layers with 1.6 billion parameters (Coates et al. 2013, section 5.2) in 1, 2 and 4 partitions, which
are processes that share one GPU.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.report import Bar, print_report, say
from disttrain.groups import gloo
from disttrain.parallel import (
    Alone,
    Communicator,
    Grid,
    L2Pool2d,
    LocalContrastNorm2d,
    LocallyConnected2d,
    Partitioned,
    partition,
)

H100_FLOPS = {"float32": 67e12, "bfloat16": 989e12}
"""Of the dense units: NVIDIA's data sheet of the H100 SXM."""


@dataclass(frozen=True, slots=True)
class Model:
    """What is measured."""

    make: Callable[[], nn.Sequential]
    sample: tuple[int, ...]
    classes: int
    batch: int
    grids: Sequence[tuple[int, int]]


def cifar() -> nn.Sequential:
    """CCPCPCPFFF, as `examples/cifar10`."""
    layers: list[nn.Module] = []
    for inputs, outputs, pools in ((3, 32, False), (32, 32, True), (32, 64, True), (64, 64, True)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.LeakyReLU(0.01)]
        layers += [nn.MaxPool2d(2)] if pools else []
    layers += [nn.Flatten(), nn.Linear(1024, 256), nn.LeakyReLU(0.01)]
    return nn.Sequential(*layers, nn.Linear(256, 128), nn.LeakyReLU(0.01), nn.Linear(128, 10))


def image() -> nn.Sequential:
    """Locally connected stages with pooling and contrast normalisation, at a small size."""
    return nn.Sequential(
        LocallyConnected2d(3, 8, 10, input_size=(64, 64), stride=2, block=2, bias=False),
        L2Pool2d(3, 2, 1),
        LocalContrastNorm2d(5),
        LocallyConnected2d(8, 8, 10, input_size=(28, 28), stride=2, block=2, bias=False),
        L2Pool2d(3, 2, 1),
        nn.Flatten(),
        nn.Linear(8 * 10 * 10, 100),
    )


def speech() -> nn.Sequential:
    """Fully connected, with the widths of Dean et al. 2012, section 5."""
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(11 * 40, 2560), nn.Sigmoid()]
    for _ in range(3):
        layers += [nn.Linear(2560, 2560), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Linear(2560, 8192))


def billions(size: int) -> nn.Sequential:
    """Three stacks of 20 x 20 fields, blocks 4 x 4 x 8 and a step of 4; as each step shrinks it."""
    layers: list[nn.Module] = []
    channels = 3
    for _ in range(3):
        layer = LocallyConnected2d(
            channels, 8, 20, input_size=(size, size), stride=4, block=4, bias=False
        )
        layers += [layer, L2Pool2d(5, 1, 2), LocalContrastNorm2d(5)]
        channels, size = 8, 4 * ((size - 20) // 4 + 1)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * size * size, 10))


def on_cpu(*, quick: bool) -> dict[str, Model]:
    batch = 8 if quick else 96
    grids = ((1, 1), (1, 2))
    return {
        "CIFAR-10 network": Model(cifar, (3, 32, 32), 10, batch, grids),
        "local image model": Model(image, (3, 64, 64), 100, batch, grids),
        "speech model": Model(speech, (1, 11, 40), 8192, batch, grids),
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
    independent: bool = False
    """Each process trains the whole model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What one process measured."""

    parameters: int
    samples_per_second: float
    messages: float
    nbytes: float
    """Per step."""
    losses: Sequence[float]


def work(rank: int, job: Job, folder: str) -> None:
    """In a process of its own."""
    torch.set_num_threads(1)
    models = on_gpu(job.size) if job.device == "cuda" else on_cpu(quick=job.quick)
    model, size = models[job.model], job.grid[0] * job.grid[1]
    store = distributed.FileStore(f"{folder}/store", size)  # type: ignore[attr-defined]
    store.set_timeout(timedelta(seconds=120))
    peers: Communicator = gloo.communicator(store, rank, size, "127.0.0.1")
    divided, grid = (Alone(), Grid(1, 1)) if job.independent else (peers, Grid(*job.grid))
    made = part(model, grid, divided, job)
    run = measured(made, model, job, peers)
    Path(folder, f"{rank}.json").write_text(json.dumps(asdict(run)))
    # Nobody leaves while another one still talks to it.
    peers.sum(torch.zeros(1))
    # As a process group is never destroyed, the end of an interpreter would abort the process.
    os._exit(0)


def part(model: Model, grid: Grid, peers: Communicator, job: Job) -> Partitioned:
    """Initialised without anybody's holding the whole model."""
    with torch.device("meta"):
        whole = model.make()
    made = partition(whole, grid, peers, model.sample).to_empty(device=job.device)
    torch.manual_seed(peers.rank)
    for parameter in made.parameters():
        scale = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.0
        nn.init.normal_(parameter, std=scale)
    return made


def measured(made: Partitioned, model: Model, job: Job, peers: Communicator) -> Run:
    torch.manual_seed(0)
    x = torch.randn(model.batch, *model.sample).to(job.device)
    labels = torch.randint(0, model.classes, (model.batch,)).to(job.device)
    optimizer = torch.optim.SGD(made.parameters(), lr=0.001)
    is_half = job.precision == "bfloat16"
    times, losses = [], []
    before = asdict(made.peers.traffic)
    for step in range(-2, job.steps):
        if step == 0:
            before = asdict(made.peers.traffic)
        peers.sum(torch.zeros(1))
        began = time.perf_counter()
        with torch.autocast(job.device, torch.bfloat16, enabled=is_half):
            loss = functional.cross_entropy(made(x).float(), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
        peers.sum(torch.zeros(1))
        if step >= 0:
            times.append(time.perf_counter() - began)
    sent = {
        name: (value - before[name]) / job.steps
        for name, value in asdict(made.peers.traffic).items()
    }
    return Run(
        parameters=sum(parameter.numel() for parameter in made.parameters()),
        samples_per_second=model.batch / statistics.median(times),
        messages=sent["messages"],
        nbytes=sent["nbytes"],
        losses=losses,
    )


def run(job: Job) -> list[Run]:
    """What all processes measured."""
    with tempfile.TemporaryDirectory() as folder:
        size = job.grid[0] * job.grid[1]
        multiprocessing.spawn(work, (job, folder), nprocs=size)  # type: ignore[no-untyped-call, attr-defined]
        files = (Path(folder, f"{rank}.json").read_text() for rank in range(size))
        return [Run(**json.loads(text)) for text in files]


def row(job: Job, runs: Sequence[Run]) -> dict[str, Any]:
    together = sum if job.independent else max
    return {
        "model": job.model,
        "processes": len(runs),
        "divided": not job.independent and len(runs) > 1,
        "precision": job.precision,
        "parameters": sum(each.parameters for each in runs),
        "samples_per_second": together([each.samples_per_second for each in runs]),
        "messages_per_step": sum(each.messages for each in runs),
        "bytes_per_step": sum(each.nbytes for each in runs),
        "first_and_last_loss": [runs[0].losses[0], runs[0].losses[-1]],
    }


def main() -> None:
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small batches, one step: that it runs"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", type=int, default=200, help="rows of an image, on a GPU")
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    rows, bars = (gpu_rows if options.device == "cuda" else cpu_rows)(options)
    print_report("model_parallel", {"rows": rows}, bars)


def cpu_rows(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Bar]]:
    rows, bars = [], []
    bounds = {"CIFAR-10 network": 0.85, "local image model": 0.85, "speech model": 0.7}
    for name, model in on_cpu(quick=options.quick).items():
        speeds = []
        for grid, independent in [*((grid, False) for grid in model.grids), ((1, 2), True)]:
            job = Job(
                model=name,
                quick=options.quick,
                device="cpu",
                precision="float32",
                size=options.size,
                steps=1 if options.quick else 10,
                grid=grid,
                independent=independent,
            )
            rows.append(row(job, run(job)))
            speeds.append(rows[-1]["samples_per_second"])
            say(str(rows[-1]))
        one, two, apart = speeds
        bars.append(Bar(f"{name}: two partitions, of two processes", two / apart, bounds[name]))
        say(f"{name}: {two / one:.2f} times one process, {two / apart:.2f} of two")
    return rows, bars


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
                found = row(job, run(job))
                # Forward, and the gradients of inputs and of weights.
                flops = 6.0 * found["parameters"] * found["samples_per_second"]
                rows.append({**found, "tera_flops": flops / 1e12, "of_the_peak": flops / peak})
                say(str(rows[-1]))
    return rows, []


if __name__ == "__main__":
    main()
