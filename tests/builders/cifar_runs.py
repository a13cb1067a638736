"""Runs of the CIFAR-10 example in virtual time, side by side in processes, kept in a file.

Each line of the file is one run as JSON. What it holds already is not run again, so that a
measurement that was ended goes on where it was.
"""

import json
import multiprocessing
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from builders.report import say
from disttrain.job.spec import DistTrainJob
from disttrain.replica import task_calls
from disttrain.replica.task_calls import TaskCalls
from disttrain.simulation.machines import Machines
from disttrain.simulation.run import SimulatedRun
from disttrain.simulation.setting import prepare

HOME = Path(__file__).resolve().parents[2]
EXAMPLE, SMALL = "cifar10:Cifar10", "thumbnails:Thumbnails"
FOLDERS = {EXAMPLE: HOME / "examples" / "cifar10", SMALL: HOME / "tests" / "tasks"}
MOMENTUM = 0.99


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """Parquet files of CIFAR-10, and which network computes where."""

    train: Path
    test: Path
    device: str = "auto"
    task: str = EXAMPLE
    """Of `FOLDERS`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One run: `replicas` of them, with a momentum of 0.99 and a rate that grows at first."""

    replicas: int
    predicts: bool
    batch: int
    rate: float
    seed: int
    epochs: int
    shards: int
    machines: Mapping[str, float]
    """Fields of `Machines`."""
    growing_epochs: float = 1.0
    """In which the rate grows to what it is."""
    until: float = 0.0
    """The error at which the run ends, if it comes there before its last epoch."""
    evaluations: int = 2
    """In an epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a run left."""

    case: Case
    points: Sequence[tuple[float, float, float]]
    """Epochs, virtual seconds, and the part of the test images that were taken for another class.

    A network whose loss is no number any more takes all images for one class, so its points end.
    """
    staleness: float
    """The mean over all pushes."""
    updates: int
    """Gradients that the first shard applied."""

    def first(self, error: float, *, by: int = 0) -> float:
        """Epochs (`by` 0) or seconds (1) until the error was reached; NaN: never."""
        return next((point[by] for point in self.points if point[2] <= error), float("nan"))


def measure(cases: Iterable[Case], data: Data, results: Path, processes: int) -> Sequence[Outcome]:
    """The outcomes of these cases, in their order."""
    wanted = list(cases)
    known = read(results)
    missing = [case for case in wanted if key(case) not in known]
    if missing:
        # Forked processes have the images already.
        task_of(data)
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(processes, mp_context=context) as pool, results.open("a") as file:
            running = [pool.submit(run_case, case, data) for case in missing]
            for done in as_completed(running):
                outcome = done.result()
                known[key(outcome.case)] = outcome
                file.write(json.dumps(asdict(outcome)) + "\n")
                file.flush()
                say(f"{len(known)}: {outcome.case} -> {outcome.points[-1:]}")
    return [known[key(case)] for case in wanted]


def key(case: Case) -> str:
    return json.dumps(asdict(case), sort_keys=True)


def read(results: Path) -> dict[str, Outcome]:
    """The runs that a file holds, by their case."""
    lines = results.read_text().splitlines() if results.exists() else []
    found = {}
    for line in lines:
        fields = json.loads(line)
        case = Case(**fields.pop("case"))
        points = [tuple(point) for point in fields.pop("points")]
        found[key(case)] = Outcome(case=case, points=points, **fields)
    return found


def run_case(case: Case, data: Data) -> Outcome:
    torch.set_num_threads(1)
    run = simulated(case, data)
    result = run.run()
    samples = run.setting.train_samples
    points = []
    for point in result.points:
        if point.measured.loss is None or point.measured.loss != point.measured.loss:
            break
        error = 1.0 - point.measured.measures["accuracy"]
        points.append((point.samples / samples, point.seconds, error))
    pushes = sum(result.staleness.values())
    staleness = sum(age * count for age, count in result.staleness.items()) / max(pushes, 1)
    updates = pushes // case.shards
    return Outcome(case=case, points=points, staleness=staleness, updates=updates)


def simulated(
    case: Case, data: Data, evaluate_every: int | None = None, samples: int | None = None
) -> SimulatedRun:
    """A run that is evaluated as the case says, or after so many samples."""
    momentum = {
        "learningRate": case.rate,
        "momentum": MOMENTUM,
        "schedule": {"warmup": {"epochs": case.growing_epochs}, "constant": {}},
    }
    downpour: dict[str, Any] = {"optimizer": {"momentum": momentum}, "maxInFlight": 0}
    if case.predicts:
        downpour["staleness"] = {"predict": {}}
    job = DistTrainJob.model_validate(
        {
            "apiVersion": "disttrain.dev/v1alpha1",
            "kind": "DistTrainJob",
            "metadata": {"name": "cifar10"},
            "spec": {
                "task": {"entrypoint": data.task},
                "strategy": {"downpour": downpour},
                "batchSize": case.batch,
                "seed": case.seed,
                "stop": {
                    "targetMetric": {"name": "accuracy", "atLeast": 1.0 - case.until},
                    **({"epochs": case.epochs} if samples is None else {"samples": samples}),
                },
                "parameterServer": {"shards": case.shards},
                "replicas": {"count": 1, "device": data.device},
            },
        }
    )
    setting = prepare(job, task_of(data))
    every = evaluate_every or setting.train_samples // case.evaluations
    return SimulatedRun(setting, Machines(**dict(case.machines)), case.replicas, every)  # type: ignore[arg-type]


@cache
def task_of(data: Data) -> TaskCalls:
    job = DistTrainJob.model_validate(
        {
            "apiVersion": "disttrain.dev/v1alpha1",
            "kind": "DistTrainJob",
            "metadata": {"name": "cifar10"},
            "spec": {
                "task": {
                    "entrypoint": data.task,
                    "arguments": {"train": str(data.train), "test": str(data.test)},
                },
                "strategy": {"downpour": {}},
                "batchSize": 1,
                "stop": {"epochs": 1},
            },
        }
    )
    return task_calls.load(job, FOLDERS[data.task])
