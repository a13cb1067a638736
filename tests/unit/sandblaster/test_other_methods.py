"""The scheme is not built for one method."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from builders.batch_problems import (
    PROBLEMS,
    RULES,
    Problem,
    Vector,
    iterates,
    rosenbrock,
    shards_of,
)
from disttrain.sandblaster.descent import Descent
from disttrain.sandblaster.directions import ConjugateGradient, Directions, SteepestDescent
from disttrain.sandblaster.lbfgs import Lbfgs
from disttrain.sandblaster.line_search import ArmijoRules, WolfeRules
from disttrain.sandblaster.method import End
from disttrain.sandblaster.operations import PARAMETERS
from oracles.batch_method import BatchMethod

METHODS: dict[str, Directions] = {
    "lbfgs": Lbfgs(),
    "conjugate gradient": ConjugateGradient(),
    "gradient descent": SteepestDescent(),
}


def easy() -> Problem:
    scales, target = np.geomspace(1.0, 20.0, 30), np.linspace(-1.0, 1.0, 30)
    return Problem(
        "easy",
        np.zeros(30),
        lambda x: (float(scales @ (x - target) ** 2) / 2, scales * (x - target)),
    )


@pytest.mark.parametrize(
    "search", [WolfeRules(curvature=0.1), ArmijoRules()], ids=["wolfe", "armijo"]
)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_finds_the_minimum(name: str, search: WolfeRules | ArmijoRules) -> None:
    rules = replace(RULES, search=search, gradient_tolerance=1e-8)
    method, engine = BatchMethod(Descent(rules, METHODS[name])), shards_of(easy(), 2)

    iterates(method, engine, evaluations=2000)

    assert method.progress.end is End.GRADIENT
    assert np.allclose(engine.vector(PARAMETERS), np.linspace(-1.0, 1.0, 30), atol=1e-7)
    assert engine.commands <= 2 * method.progress.evaluations + 1 + method.progress.iteration


def test_conjugate_gradients_need_fewer_evaluations_than_gradient_descent() -> None:
    needed = {}
    for name, directions in METHODS.items():
        rules = replace(RULES, search=WolfeRules(curvature=0.1), gradient_tolerance=1e-6)
        method = BatchMethod(Descent(rules, directions))
        iterates(method, shards_of(easy()), evaluations=5000)
        needed[name] = method.progress.evaluations

    assert needed["conjugate gradient"] < needed["gradient descent"] / 2


@pytest.mark.parametrize(
    ("problem", "search"),
    [(rosenbrock(4), WolfeRules(curvature=0.1)), (PROBLEMS["softmax"], ArmijoRules())],
    ids=["wolfe", "armijo"],
)
def test_conjugate_directions_are_polak_and_ribieres_with_a_factor_of_at_least_0(
    problem: Problem, search: WolfeRules | ArmijoRules
) -> None:
    method = BatchMethod(Descent(replace(RULES, search=search), ConjugateGradient()))
    points = iterates(method, shards_of(problem, 3), 12)
    factors = []
    before, direction = np.ones_like(points[0]), np.zeros_like(points[0])
    for here, there in pairwise(points):
        _, gradient = problem.evaluate(here)
        factors.append(float(gradient @ (gradient - before) / (before @ before)))
        direction = max(0.0, factors[-1]) * direction - gradient
        assert np.allclose(unit(there - here), unit(direction), rtol=0, atol=1e-9)
        before = gradient

    assert min(factors[1:]) < 0 < max(factors[1:])


def unit(vector: Vector) -> Vector:
    """The same direction."""
    return vector / np.linalg.norm(vector)


def test_conjugate_gradients_get_the_line_search_that_they_need() -> None:
    given, exact = (
        BatchMethod(Descent(replace(RULES, search=search), ConjugateGradient()))
        for search in (WolfeRules(), WolfeRules(curvature=0.1))
    )

    points = [iterates(method, shards_of(easy()), 10)[-1].tobytes() for method in (given, exact)]

    assert points[0] == points[1]
    exacter = WolfeRules(curvature=0.01)
    assert ConjugateGradient().suited(exacter) == exacter
    assert ConjugateGradient().suited(ArmijoRules()) == ArmijoRules()
    assert Lbfgs().suited(WolfeRules()) == WolfeRules()


def test_conjugate_gradients_go_on_after_a_restart() -> None:
    rules = replace(RULES, search=WolfeRules(curvature=0.1), gradient_tolerance=1e-5)
    method = BatchMethod(Descent(rules, ConjugateGradient()))
    engine = shards_of(PROBLEMS["softmax"], 3)

    iterates(method, engine, evaluations=5000)

    assert method.progress.end is End.GRADIENT
    assert method.progress.loss == pytest.approx(0.8883101976, rel=1e-6)
