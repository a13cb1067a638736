"""Losses over a whole batch in float64, and batch methods carried out on them in one process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from disttrain.sandblaster import operations
from disttrain.sandblaster.descent import Descent, DescentRules
from disttrain.sandblaster.lbfgs import Lbfgs
from disttrain.sandblaster.line_search import WolfeRules
from disttrain.sandblaster.method import Answer, Request
from disttrain.sandblaster.operations import ARRIVED, PARAMETERS, TRIAL, Operation
from disttrain.sandblaster.vectors import Vectors
from oracles.batch_method import BatchMethod, Method

Vector: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something to be minimised."""

    name: str
    start: Vector
    evaluate: Callable[[Vector], tuple[float, Vector]]
    """Loss and gradient."""


def rosenbrock(dimensions: int = 100) -> Problem:
    """The usual chain of curved valleys."""
    start = np.where(np.arange(dimensions) % 2 == 0, -1.2, 1.0)

    def evaluate(x: Vector) -> tuple[float, Vector]:
        bent = x[1:] - x[:-1] ** 2
        gradient = np.zeros_like(x)
        gradient[:-1] = -400 * x[:-1] * bent - 2 * (1 - x[:-1])
        gradient[1:] += 200 * bent
        return float(np.sum(100 * bent**2 + (1 - x[:-1]) ** 2)), gradient

    return Problem("rosenbrock", start, evaluate)


def quadratic(dimensions: int = 30, condition: float = 1e6) -> Problem:
    """A bowl that is much steeper along some axes than along others, and turned."""
    random = np.random.default_rng(5)
    turned, _ = np.linalg.qr(random.standard_normal((dimensions, dimensions)))
    matrix = turned @ np.diag(np.geomspace(1.0, condition, dimensions)) @ turned.T
    matrix = (matrix + matrix.T) / 2
    target = matrix @ random.standard_normal(dimensions)

    def evaluate(x: Vector) -> tuple[float, Vector]:
        product = matrix @ x
        return float(x @ product) / 2 - float(target @ x), product - target

    return Problem("quadratic", np.zeros(dimensions), evaluate)


def softmax_regression(samples: int = 400, inputs: int = 20, classes: int = 5) -> Problem:
    """Softmax regression on made-up data of very different scales, with a small penalty."""
    random = np.random.default_rng(7)
    data = random.standard_normal((samples, inputs)) * np.geomspace(0.05, 5.0, inputs)
    labels = np.argmax(data @ random.standard_normal((inputs, classes)), axis=1)
    labels = np.where(random.random(samples) < 0.2, random.integers(classes, size=samples), labels)
    wanted = np.eye(classes)[labels]

    def evaluate(x: Vector) -> tuple[float, Vector]:
        scores = data @ x.reshape(inputs, classes)
        scores -= scores.max(axis=1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        gradient = data.T @ (np.exp(logs) - wanted) / samples + 1e-4 * x.reshape(inputs, classes)
        loss = -np.sum(logs * wanted) / samples + 5e-5 * float(x @ x)
        return float(loss), gradient.ravel()

    return Problem("softmax", np.zeros(inputs * classes), evaluate)


PROBLEMS = {problem.name: problem for problem in (rosenbrock(), quadratic(), softmax_regression())}


@dataclass(slots=True)
class InProcess:
    """Shards in one process, and a problem whose gradient is cut into their parts."""

    problem: Problem
    shards: list[Vectors]
    commands: int = 0
    evaluations: list[float] = field(default_factory=list)
    """Losses."""

    def answer(self, request: Request) -> Answer:
        prepared = self._command(request.prepare)
        loss = self._evaluate() if request.evaluates else 0.0
        return Answer(scalars=prepared + self._command(request.measure), loss=loss)

    def vector(self, name: str) -> Vector:
        return np.concatenate([shard[name] for shard in self.shards]).astype(np.float64)

    def _command(self, command: tuple[Operation, ...]) -> tuple[float, ...]:
        self.commands += bool(command)
        return operations.merged(command, [shard.perform(command) for shard in self.shards])

    def _evaluate(self) -> float:
        loss, gradient = self.problem.evaluate(self.vector(TRIAL))
        self.evaluations.append(loss)
        first = 0
        for shard in self.shards:
            shard.make(ARRIVED)[:] = gradient[first : first + shard.elements]
            first += shard.elements
        return loss


def shards_of(
    problem: Problem, shards: int = 1, kind: type[np.float32 | np.float64] = np.float64
) -> InProcess:
    """Cut into nearly equal ranges."""
    made = []
    for part in np.array_split(problem.start, shards):
        vectors = Vectors(len(part), kind)
        vectors.make(PARAMETERS)[:] = part
        made.append(vectors)
    return InProcess(problem, made)


def iterates(
    method: Method, engine: InProcess, iterations: int = 1000, evaluations: int = 10_000
) -> list[Vector]:
    """The accepted points, until the method ends or so many iterations or evaluations are done."""
    points = [engine.vector(PARAMETERS)]
    request = method.advance(None)
    while request is not None and method.progress.iteration < iterations:
        if request.evaluates and method.progress.evaluations >= evaluations:
            break
        seen = method.progress.iteration
        answer = engine.answer(request)
        if seen == len(points):
            points.append(engine.vector(PARAMETERS))
        request = method.advance(answer)
    return points


RULES = DescentRules(search=WolfeRules())


def fused(rules: DescentRules = RULES, directions: Lbfgs | None = None) -> BatchMethod:
    return BatchMethod(Descent(rules, directions or Lbfgs()))
