"""Whole jobs of batch methods in one process: a driver, shards, replicas; softmax regression."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from builders.batch_problems import Vector
from disttrain.sandblaster.batch.driver import Driver, RunState, Stage
from disttrain.sandblaster.batch.groups import Attempt, Result, Worker
from disttrain.sandblaster.batch.staging import BatchShard, Chunk, Layout
from disttrain.sandblaster.operations import PARAMETERS, TRIAL

_INCARNATION = 1


class Grouped(Protocol):
    """A loss over samples in groups."""

    @property
    def dimensions(self) -> int: ...

    def group(self, group: int, x: Vector) -> tuple[float, Vector, int]:
        """Loss and gradient, added up over the samples of a group, and how many these are."""


@dataclass(frozen=True, eq=False, slots=True)
class Regression:
    """Softmax regression, cut into groups of so many samples; the last one may be smaller."""

    data: Vector
    wanted: Vector
    """One row for each sample, with a one where its class is."""
    group_samples: int
    penalty: float = 1e-3
    ripples: float = 0.0
    """Height of waves in the loss, which then curves downwards in places."""

    @property
    def groups(self) -> int:
        return -(-len(self.data) // self.group_samples)

    @property
    def dimensions(self) -> int:
        return int(self.data.shape[1] * self.wanted.shape[1])

    def samples(self, groups: Sequence[int]) -> list[int]:
        """All samples of some groups."""
        found: list[int] = []
        for group in groups:
            first = group * self.group_samples
            found += range(first, min(first + self.group_samples, len(self.data)))
        return found

    def group(self, group: int, x: Vector) -> tuple[float, Vector, int]:
        samples = self.samples([group])
        return *self.sums(samples, x), len(samples)

    def sums(self, samples: Sequence[int], x: Vector) -> tuple[float, Vector]:
        """Loss and gradient, added up over samples."""
        data, wanted = self.data[list(samples)], self.wanted[list(samples)]
        weights = x.reshape(data.shape[1], wanted.shape[1])
        scores = data @ weights
        scores -= scores.max(axis=1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        gradient = data.T @ (np.exp(logs) - wanted) + len(samples) * self.penalty * weights
        loss = -np.sum(logs * wanted) + len(samples) * self.penalty / 2 * float(x @ x)
        loss += len(samples) * self.ripples * float(np.sum(np.cos(2 * x)))
        waves = len(samples) * self.ripples * 2 * np.sin(2 * x)
        return float(loss), gradient.ravel() - waves

    def means(self, samples: Sequence[int], x: Vector) -> tuple[float, Vector]:
        loss, gradient = self.sums(samples, x)
        return loss / len(samples), gradient / len(samples)

    def mean_loss(self, x: Vector) -> float:
        """Over all data."""
        return self.means(range(len(self.data)), x)[0]


def regression(
    samples: int = 400, group_samples: int = 20, inputs: int = 12, classes: int = 4
) -> Regression:
    """On made-up data of different scales, a fifth of it with a class by chance."""
    chance = np.random.default_rng(17)
    data = chance.standard_normal((samples, inputs)) * np.geomspace(0.3, 3.0, inputs)
    labels = np.argmax(data @ chance.standard_normal((inputs, classes)), axis=1)
    by_chance = chance.integers(classes, size=samples)
    labels = np.where(chance.random(samples) < 0.2, by_chance, labels)
    return Regression(data, np.eye(classes)[labels], group_samples)


@dataclass(slots=True)
class BatchJob:
    """One job; one thing happens after the other, in an order drawn from a seed, or in turn."""

    problem: Grouped
    driver: Driver
    shards: int = 1
    replicas: int = 1
    seed: int = 0
    start: Vector | float = 0.0
    in_turn: bool = False
    """Shards answer by their numbers, and each group is done before the next one is asked for."""
    cuts: Sequence[slice] = ()
    """Each shard's part of the parameters; nearly equal ones unless they are given."""
    points: list[Vector] = field(default_factory=list)
    """That were accepted, with the first one."""
    evaluated: list[tuple[int, ...]] = field(default_factory=list)
    """The groups of each evaluation, by their places."""
    run_state: RunState = field(init=False)
    result: Vector = field(init=False)
    """The parameters at the end."""

    def run(self, is_over: Callable[[RunState], bool] = lambda _: False) -> RunState:
        """Until the method ends, or `is_over` before a command."""
        self.run_state = self.driver.begin(_INCARNATION, (_INCARNATION,) * self.shards)
        first = np.full(self.problem.dimensions, self.start)
        parts = list(_parts(first, self.cuts or _equal(len(first), self.shards)))
        chance = random.Random(self.seed)
        while self.run_state.stage is not Stage.DONE and not is_over(self.run_state):
            command = self.run_state.order
            numbered = list(enumerate(parts))
            for index, (_, shard) in (
                numbered if self.in_turn else chance.sample(numbered, self.shards)
            ):
                self.driver.answered(self.run_state, index, shard.carry_out(command))
            if command.iteration == len(self.points):
                self.points.append(_whole(parts, PARAMETERS))
            if self.run_state.stage is Stage.COMPUTING:
                self.evaluated.append(tuple(self.run_state.evaluation.places))
                self._compute(parts)
        self.result = _whole(parts, PARAMETERS)
        return self.run_state

    def _compute(self, parts: list[tuple[slice, BatchShard]]) -> None:
        """Everybody takes what there is; who is done first is chance."""
        chance, held = random.Random(self.seed), list[Attempt]()
        point = _whole(parts, TRIAL)
        while self.run_state.stage is Stage.COMPUTING:
            worker = Worker(chance.randrange(self.replicas), _INCARNATION)
            numbers = [one.number for one in held]
            attempt = self.driver.request_group(self.run_state, worker, numbers)
            if attempt is not None:
                held.append(attempt)
            if attempt is None or self.in_turn or chance.random() < 0.5:
                self._finish(held.pop(chance.randrange(len(held))), parts, point)

    def _finish(
        self, attempt: Attempt, parts: list[tuple[slice, BatchShard]], point: Vector
    ) -> None:
        loss, gradient, samples = self.problem.group(attempt.group, point)
        number = self.run_state.evaluation.number
        chunk = Chunk(
            sender=attempt.worker,
            evaluation=number,
            group=attempt.group,
            attempt=attempt.number,
            number=0,
        )
        for part, shard in parts:
            shard.staging.stage(chunk, gradient[part])
        result = Result(
            attempt=attempt.number,
            evaluation=number,
            loss_sum=loss,
            samples=samples,
            shards=self.run_state.evaluation.shards,
        )
        self.driver.staged(self.run_state, attempt.worker, result)


def _equal(dimensions: int, shards: int) -> list[slice]:
    parts = np.array_split(np.arange(dimensions), shards)
    return [slice(int(part[0]), int(part[-1]) + 1) for part in parts]


def _parts(first: Vector, cuts: Sequence[slice]) -> Iterator[tuple[slice, BatchShard]]:
    for cut in cuts:
        size = cut.stop - cut.start
        layout = Layout(elements=size, chunk_elements=size, element_type=np.float64)
        shard = BatchShard(layout, 1 << 24)
        shard.vectors.make(PARAMETERS)[:] = first[cut]
        yield cut, shard


def _whole(parts: list[tuple[slice, BatchShard]], name: str) -> Vector:
    return np.concatenate([shard.vectors[name] for _, shard in parts]).astype(np.float64)
