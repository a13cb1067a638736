"""Multi-batch L-BFGS as the paper has it, on whole vectors: what the sharded one is tested by."""

from dataclasses import dataclass

import numpy as np

from builders.batch_problems import Vector
from builders.sampled_jobs import Regression
from disttrain.sandblaster.batch.batches import Batches
from disttrain.sandblaster.lbfgs import WeakPairs
from disttrain.sandblaster.line_search import Point, Search, SearchRules, Stage

Pair = tuple[Vector, Vector]


@dataclass(frozen=True, slots=True)
class SerialMultiBatch:
    problem: Regression
    batches: Batches
    search: SearchRules
    history: int = 5
    weak_pairs: WeakPairs = WeakPairs.DAMP

    def points(self, iterations: int) -> list[Vector]:
        """The accepted points, with the first one."""
        points, pairs = [np.zeros(self.problem.dimensions)], list[Pair]()
        for number in range(iterations):
            x, batch = points[-1], self.batches.batch(number)
            samples = self.problem.samples([*batch.before, *batch.middle, *batch.after])
            loss, gradient = self.problem.means(samples, x)
            direction = two_loop(gradient, pairs)
            first_step = 1.0 if pairs else min(1.0, 1.0 / float(np.abs(gradient).sum()))
            start = Point(step=0.0, loss=loss, slope=float(gradient @ direction))
            step = self._search(samples, x, direction, self.search.begin(start, first_step))
            shared = self.problem.samples(batch.after)
            points.append(x + step * direction)
            there, here = (self.problem.means(shared, point)[1] for point in (points[-1], x))
            pairs = self._remembered(pairs, (step * direction, there - here))
        return points

    def _search(self, samples: list[int], x: Vector, direction: Vector, search: Search) -> float:
        while search.stage is Stage.TRYING:
            loss, gradient = self.problem.means(samples, x + search.trial * direction)
            slope = float(gradient @ direction)
            search = search.advanced(Point(step=search.trial, loss=loss, slope=slope))
        assert search.stage is Stage.ACCEPTED
        return search.trial

    def _remembered(self, pairs: list[Pair], new: Pair) -> list[Pair]:
        step, change = new
        if pairs and self.weak_pairs is WeakPairs.DAMP:
            change = damped(matrix(pairs), step, change)
        kept = pairs[1:] if len(pairs) == self.history else pairs
        lengths = float(np.linalg.norm(step) * np.linalg.norm(change))
        return [*kept, (step, change)] if step @ change > 1e-10 * lengths else kept


def two_loop(gradient: Vector, pairs: list[Pair]) -> Vector:
    """Nocedal and Wright, algorithm 7.4."""
    direction, shares = -gradient, list[float]()
    for step, change in reversed(pairs):
        shares.append(float(step @ direction) / float(step @ change))
        direction = direction - shares[-1] * change
    if pairs:
        step, change = pairs[-1]
        direction = direction * (float(step @ change) / float(change @ change))
    for (step, change), share in zip(pairs, reversed(shares), strict=True):
        direction = direction + (share - float(change @ direction) / float(step @ change)) * step
    return direction


def matrix(pairs: list[Pair]) -> Vector:
    """What the two loops are the inverse of, written out: BFGS from a multiple of one."""
    step, change = pairs[-1]
    found = np.eye(len(step)) * (float(change @ change) / float(step @ change))
    for step, change in pairs:
        image = found @ step
        found = found - np.outer(image, image) / float(step @ image)
        found = found + np.outer(change, change) / float(step @ change)
    return found


def damped(curved: Vector, step: Vector, change: Vector) -> Vector:
    """Nocedal and Wright, procedure 18.2."""
    image = curved @ step
    product, expected = float(step @ change), float(step @ image)
    if product >= 0.2 * expected:
        return change
    share = 0.8 * expected / (expected - product)
    return share * change + (1 - share) * image
