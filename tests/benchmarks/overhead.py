"""What joining a parameter server costs: one replica and one shard beside the plain PyTorch loop.

    .venv/bin/python tests/benchmarks/overhead.py [--quick]

Same model, batches and compute threads, in rounds that take turns. The shard is a process of its
own over shared memory; the replica has its three threads and the pipeline, but no coordinator. The
plain loop is torch.optim.Adagrad in one process. Medians; only the ratios mean anything.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.downpours import a_downpour
from builders.jobs import SMALL
from builders.lone_shard import PLAIN, LoneShard
from builders.report import Bar, print_report
from disttrain.coordinator.protocol.fields import Lease
from disttrain.job.parsing import parse_job
from disttrain.parameter_server.client import FetchClient, PushClient
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.downpour import Downpour
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.model_tensors import describe
from disttrain.replica.pipeline import Pipeline, PipelineConfig
from disttrain.replica.stepper import TrainingLoop
from disttrain.replica.work import Cutting, LostLeases, WorkSource
from disttrain.task.loss import BatchLoss
from disttrain.transport.config import TransportKind

JOB = SMALL.replace("{sgd: {learningRate: 0.1}}", "{adagrad: {learningRate: 0.01}}")
RATE = 0.01
LEAST_RATIO = 0.9


@dataclass(frozen=True)
class Workload:
    """A model and its batches."""

    name: str
    model: nn.Module
    pixels: Tensor
    batch: int
    steps: int
    """Per round."""

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return functional.cross_entropy(model(batch[0].float().div(128).sub(1)), batch[1])


class Labelled(torch.utils.data.Dataset[Any]):
    """Bytes in memory with labels, a batch at once."""

    def __init__(self, pixels: Tensor) -> None:
        self._pixels, self._labels = pixels, torch.arange(len(pixels)) % 10

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        return self._pixels[indices], self._labels[indices]


class Leases(WorkSource):
    """One lease after the other, without a coordinator."""

    def __init__(self, samples: int) -> None:
        self.dry = self.ended = False
        self._samples = samples
        self._given = 0

    def next_now(self) -> Lease | None:
        self._given += 1
        return Lease(id=self._given, epoch=0, portion=0, first=0, end=self._samples)

    def next_within(self, seconds: float) -> Lease | None:  # noqa: ARG002  There always is one.
        return self.next_now()


class Joined:
    """A replica on its one shard."""

    def __init__(self, shard: LoneShard, workload: Workload) -> None:
        config = shard.client_config(0)
        model = FlatModel(
            workload.model,
            config.transport.memory("replica-0-i1"),
            torch.device("cpu"),
            outgoing_buffers=2,
        )
        sides = Sides(push=PushClient(config), fetch=FetchClient(config))
        cancellation = Cancellation()
        self.connection = Connection(model, sides, cancellation)
        self.connection.upload([0])
        self.downpour = Downpour(self.connection, a_downpour())
        self.downpour.begin(self.connection.first_fetch(meanwhile=lambda: None))
        source = Leases(len(workload.pixels))
        cutting = Cutting(
            batch_size=workload.batch,
            portion_indices=lambda _p, _e: np.arange(len(workload.pixels)),
        )
        pipeline = Pipeline(
            Labelled(workload.pixels),
            lambda batch: batch,
            source,
            cutting,
            PipelineConfig(),
            cancellation,
        )
        self._loop = TrainingLoop(
            self.downpour,
            lambda batch, _context: BatchLoss(workload.loss(workload.model, batch)),
            pipeline,
            LostLeases(frozenset),
            0,
        )

    def train(self, steps: int) -> None:
        counters = self.downpour.counters
        end = counters.steps + steps
        self._loop.train_until(lambda: counters.steps >= end)

    @property
    def waited(self) -> dict[str, float]:
        """Seconds that computing waited, by reason."""
        return {
            "push": self.connection.pushes.waited_seconds,
            "fetch": self.connection.fetches.waited_seconds,
            "data": self.downpour.counters.data_seconds,
        }


class Plain:
    """The loop without DistTrain."""

    def __init__(self, workload: Workload, model: nn.Module) -> None:
        self._workload, self._model = workload, model
        self._optimizer = torch.optim.Adagrad(model.parameters(), lr=RATE)
        self._batches = self._for_ever()

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self._optimizer.zero_grad()
            loss = self._workload.loss(self._model, next(self._batches))
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            loss.item()

    def _for_ever(self) -> Iterator[tuple[Tensor, Tensor]]:
        data, samples = Labelled(self._workload.pixels), len(self._workload.pixels)
        while True:
            for first in range(0, samples, self._workload.batch):
                yield data.__getitems__(list(range(first, first + self._workload.batch)))


def photographs(steps: int) -> tuple[Workload, nn.Module]:
    """The CIFAR-10 network of the examples at batch 64."""

    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(
            *(nn.Conv2d(3, 32, 3, padding=1), nn.LeakyReLU(0.01)),
            *(nn.Conv2d(32, 32, 3, padding=1), nn.LeakyReLU(0.01), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.LeakyReLU(0.01), nn.MaxPool2d(2)),
            *(nn.Conv2d(64, 64, 3, padding=1), nn.LeakyReLU(0.01), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(1024, 256), nn.LeakyReLU(0.01)),
            *(nn.Linear(256, 128), nn.LeakyReLU(0.01), nn.Linear(128, 10)),
        )

    pixels = torch.randint(0, 256, (640, 3, 32, 32), dtype=torch.uint8)
    pixels = pixels.contiguous(memory_format=torch.channels_last)
    return Workload("cifar10", network(), pixels, 64, steps), network()


def digits(steps: int) -> tuple[Workload, nn.Module]:
    """The digits network of the examples at batch 32: steps of about a millisecond."""

    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.LeakyReLU()),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.LeakyReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(512, 64), nn.LeakyReLU(), nn.Linear(64, 10)),
        )

    pixels = torch.randint(0, 256, (640, 1, 8, 8), dtype=torch.uint8)
    return Workload("digits", network(), pixels, 32, steps), network()


def measure(workload: Workload, plain_model: nn.Module, rounds: int) -> dict[str, Any]:
    """Samples per second of both, their ratio, and what computing waited for."""
    layout = describe(workload.model).layout
    elements = {v: layout.elements(v) for v in describe(workload.model).vectors}
    with tempfile.TemporaryDirectory() as folder:
        kind = TransportKind.SHARED_MEMORY
        with LoneShard(parse_job(JOB, assignments=[PLAIN]), Path(folder), kind, elements) as shard:
            joined, plain = Joined(shard, workload), Plain(workload, plain_model)
            taken = [_round(joined, plain, workload.steps) for _ in range(rounds + 1)][1:]
            joined.connection.close()
    samples = workload.steps * workload.batch
    return {
        "samples_per_second": samples / statistics.median(t["joined"] for t in taken),
        "plain_samples_per_second": samples / statistics.median(t["plain"] for t in taken),
        "ratio": statistics.median(t["plain"] / t["joined"] for t in taken),
        "waited_share": {
            reason: statistics.median(t[reason] / t["joined"] for t in taken)
            for reason in ("push", "fetch", "data")
        },
        "rounds": rounds,
    }


def _round(joined: Joined, plain: Plain, steps: int) -> dict[str, float]:
    began = time.perf_counter()
    plain.train(steps)
    middle = time.perf_counter()
    before = joined.waited
    joined.train(steps)
    end = time.perf_counter()
    waited = {reason: seconds - before[reason] for reason, seconds in joined.waited.items()}
    return {"plain": middle - began, "joined": end - middle, **waited}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few steps: for function only")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    sys.setswitchinterval(0.0005)
    rounds = 1 if quick else 5
    figures = {
        "cifar10": measure(*photographs(2 if quick else 20), rounds),
        "digits": measure(*digits(20 if quick else 200), rounds),
    }
    bars = [Bar("cifar10_ratio_to_plain_loop", figures["cifar10"]["ratio"], LEAST_RATIO)]
    print_report("overhead", figures, bars)


if __name__ == "__main__":
    main()
