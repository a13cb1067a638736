"""Merges by a quorum, beside a serial loop over the same batches in the same rounds."""

from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from disttrain import Batch
from disttrain.job.spec import DistTrainJob
from disttrain.replica.task_calls import TaskCalls
from disttrain.simulation.evaluations import Result
from disttrain.simulation.machines import Machines
from disttrain.simulation.run import SimulatedRun
from disttrain.simulation.setting import prepare
from disttrain.state.fragments import Fragment
from disttrain.state.vector import PARAMETERS
from tasks.proving import Proving

SAMPLES, EPOCHS, BATCH, RATE = 800, 2, 8, 0.05
STEP = Machines(step_seconds=0.1, latency_seconds=0.0001)
UNEVEN = Machines(step_seconds=0.1, latency_seconds=0.0001, jitter=0.1)
Seen = tuple[Batch, int]
"""A batch, and the seed of what its step draws."""


class Watched(Proving):
    """Remembers which model has seen which batches."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: defaultdict[int, list[Seen]] = defaultdict(list)

    def loss(self, model: nn.Module, batch: Batch) -> Any:
        if torch.is_grad_enabled():
            self.seen[id(model)].append((batch, torch.initial_seed()))
        return super().loss(model, batch)


class Job:
    """A simulated one."""

    def __init__(
        self, replicas: int, machines: Machines = STEP, epochs: int = EPOCHS, **settings: Any
    ) -> None:
        self.task = Watched()
        sgd = {"name": "SGD", "arguments": {"lr": RATE}}
        local = {"optimizer": sgd, "adopt": "replace", "quorum": replicas, **settings}
        spec = {
            "task": {"entrypoint": "proving:Proving"},
            "strategy": {"localSteps": local},
            "batchSize": BATCH,
            "portionSize": 80,
            "stop": {"epochs": epochs},
            "evaluation": None,
            "parameterServer": {"shards": 2},
            "replicas": {"count": replicas, "device": "cpu"},
        }
        head = {"apiVersion": "disttrain.dev/v1alpha1", "kind": "DistTrainJob"}
        whole = {**head, "metadata": {"name": "proving"}, "spec": spec}
        setting = prepare(DistTrainJob.model_validate(whole), TaskCalls(self.task))
        self.run = SimulatedRun(setting, machines, replicas, epochs * SAMPLES)
        self.result: Result = self.run.run()

    @property
    def parameters(self) -> Tensor:
        (found,) = [each for name, each in self.run.values().items() if name.name == PARAMETERS]
        return found

    @property
    def batches(self) -> list[list[Seen]]:
        """Of each replica."""
        return list(self.task.seen.values())


def diloco(job: Job, steps: int, rate: float, momentum: float) -> Tensor:
    """Douillard et al. 2023, algorithm 1, where all replicas wait for one another."""
    torch.manual_seed(0)
    model, task = Proving().model(), Proving()
    shared = parameters_to_vector(model.parameters()).detach()
    velocity = torch.zeros_like(shared)
    for first in range(0, len(job.batches[0]), steps):
        differences, samples = [], []
        for batches in job.batches:
            vector_to_parameters(shared.clone(), model.parameters())
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            for batch, seed in batches[first : first + steps]:
                torch.manual_seed(seed)
                optimizer.zero_grad()
                task.loss(model, batch).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            differences.append(shared - parameters_to_vector(model.parameters()).detach())
            samples.append(BATCH * len(batches[first : first + steps]))
        mean = torch.zeros_like(shared)
        for difference, count in zip(differences, samples, strict=True):
            mean += difference * count / sum(samples)
        velocity = momentum * velocity + mean
        shared = shared - rate * (mean + momentum * velocity)
    return shared


class Learner:
    """One of the serial loop over fragments, which goes on with the same optimizer."""

    def __init__(self, shared: Tensor) -> None:
        torch.manual_seed(0)
        self.model, self.task = Proving().model(), Proving()
        vector_to_parameters(shared.clone(), self.model.parameters())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE, momentum=0.5)

    @property
    def parameters(self) -> Tensor:
        return parameters_to_vector(self.model.parameters()).detach()

    def train(self, batches: list[Seen]) -> None:
        for batch, seed in batches:
            torch.manual_seed(seed)
            self.optimizer.zero_grad()
            self.task.loss(self.model, batch).backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()


def in_fragments(job: Job, steps: int, count: int) -> Tensor:
    """Every steps / count steps one fragment: its mean difference, and Nesterov's momentum."""
    torch.manual_seed(0)
    shared = parameters_to_vector(Proving().model().parameters()).detach()
    velocity, learners = torch.zeros_like(shared), [Learner(shared) for _ in job.batches]
    every, whole = steps // count, len(job.batches[0])
    pushes = [(first + every, turn % count) for turn, first in enumerate(range(0, whole, every))]
    # The end of the data: what is left of each fragment.
    pushes += [(whole, number) for number in range(count)]
    done, held = 0, [0] * count
    for end, number in pushes:
        for learner, batches in zip(learners, job.batches, strict=True):
            learner.train(batches[done:end])
        done = min(end, whole)
        if held[number] == done:
            continue
        held[number] = done
        for run in Fragment(number, count).runs(len(shared)):
            part = slice(run.first, run.end)
            differences = [shared[part] - learner.parameters[part] for learner in learners]
            mean = torch.stack(differences).mean(0)
            velocity[part] = 0.9 * velocity[part] + mean
            shared[part] -= 0.7 * (mean + 0.9 * velocity[part])
            for learner in learners:
                own = learner.parameters.clone()
                own[part] = shared[part]
                vector_to_parameters(own, learner.model.parameters())
    return shared


def distance(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def test_a_quorum_of_all_with_one_step_is_synchronous_averaging() -> None:
    job = Job(2, steps=1)
    assert [len(each) for each in job.batches] == [100, 100]
    assert distance(job.parameters, diloco(job, 1, 1.0, 0.0)) < 1e-6


@pytest.mark.parametrize("replicas", [2, 4])
def test_a_quorum_of_all_is_diloco(replicas: int) -> None:
    outer = {"nesterov": {"learningRate": 0.7, "momentum": 0.9}}
    job = Job(replicas, UNEVEN, steps=5, outer=outer)
    assert distance(job.parameters, diloco(job, 5, 0.7, 0.9)) < 1e-6


@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("fragments", [2, 5])
def test_a_quorum_of_all_in_fragments_is_a_serial_loop(replicas: int, fragments: int) -> None:
    outer = {"nesterov": {"learningRate": 0.7, "momentum": 0.9}}
    sgd = {"name": "SGD", "arguments": {"lr": RATE, "momentum": 0.5}}
    job = Job(replicas, UNEVEN, steps=10, fragments=fragments, outer=outer, optimizer=sgd)
    assert distance(job.parameters, in_fragments(job, 10, fragments)) < 1e-6
