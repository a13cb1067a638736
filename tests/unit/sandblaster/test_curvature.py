"""Pairs without enough curvature are forgotten or damped."""

from dataclasses import replace

import numpy as np
import pytest

from builders.batch_problems import RULES, Problem, Vector, iterates, rosenbrock, shards_of
from disttrain.sandblaster import lbfgs
from disttrain.sandblaster.descent import Descent
from disttrain.sandblaster.lbfgs import Lbfgs, WeakPairs
from disttrain.sandblaster.line_search import ArmijoRules
from oracles.batch_method import BatchMethod
from oracles.plain_lbfgs import PlainLbfgs
from oracles.serial_multi_batch import Pair, damped, matrix, two_loop

CARELESS = replace(RULES, search=ArmijoRules())
"""The loss falls, and that is all: the gradient may fall along a step, too."""


def waves(dimensions: int = 12) -> Problem:
    """A bowl with ripples, in which the loss curves upwards and downwards."""
    scales = np.geomspace(0.5, 4.0, dimensions)

    def evaluate(x: Vector) -> tuple[float, Vector]:
        loss = float(scales @ x**2) / 2 + 3 * float(np.sum(np.cos(2 * x)))
        return loss, scales * x - 6 * np.sin(2 * x)

    return Problem("waves", np.linspace(4.0, 9.0, dimensions), evaluate)


def some_pairs(random: np.random.Generator, count: int, dimensions: int) -> list[Pair]:
    """Of a loss that curves upwards everywhere."""
    root = random.standard_normal((dimensions, dimensions))
    steps = random.standard_normal((count, dimensions))
    return [(step, (root @ root.T + np.eye(dimensions)) @ step) for step in steps]


def test_what_the_last_matrix_foretells_of_a_step_is_the_gradient_again() -> None:
    """So damping needs no vector that is not there."""
    random = np.random.default_rng(3)
    pairs, gradient = some_pairs(random, 4, 9), random.standard_normal(9)

    direction = two_loop(gradient, pairs)

    assert np.allclose(matrix(pairs) @ direction, -gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("product", [-7.0, 0.0, 0.39])
def test_a_damped_pair_has_a_fifth_of_the_expected_curvature(product: float) -> None:
    expected = 2.0

    share = lbfgs.share_of_change(product, expected)

    assert share * product + (1 - share) * expected == pytest.approx(0.2 * expected)


@pytest.mark.parametrize("product", [0.4, 5.0])
def test_a_pair_with_enough_curvature_stays_as_it_is(product: float) -> None:
    assert lbfgs.share_of_change(product, 2.0) == 1.0


def test_damping_written_out_says_the_same() -> None:
    random = np.random.default_rng(4)
    pairs = some_pairs(random, 3, 6)
    step = random.standard_normal(6)

    change = damped(matrix(pairs), step, -step)

    assert step @ change == pytest.approx(0.2 * step @ matrix(pairs) @ step)


@pytest.mark.parametrize("weak_pairs", WeakPairs)
@pytest.mark.parametrize("problem", [waves(), rosenbrock()], ids=["waves", "rosenbrock"])
def test_iterates_are_those_of_the_two_loops(problem: Problem, weak_pairs: WeakPairs) -> None:
    plain = PlainLbfgs(CARELESS, weak_pairs=weak_pairs)
    reference = iterates(plain, shards_of(problem), 25)

    method = BatchMethod(Descent(CARELESS, Lbfgs(weak_pairs=weak_pairs)))
    points = iterates(method, shards_of(problem, 3), 25)

    assert len(points) == len(reference)
    for point, wanted in zip(points, reference, strict=True):
        assert np.allclose(point, wanted, rtol=1e-8, atol=1e-9)
