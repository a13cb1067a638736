"""L-BFGS by inner products does what the textbook does, one operation at a time."""

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from builders.batch_problems import (
    PROBLEMS,
    RULES,
    Problem,
    Vector,
    fused,
    iterates,
    rosenbrock,
    shards_of,
)
from disttrain.sandblaster.descent import Descent, DescentRules
from disttrain.sandblaster.directions import ConjugateGradient, Directions, SteepestDescent
from disttrain.sandblaster.lbfgs import Lbfgs
from disttrain.sandblaster.line_search import WolfeRules
from disttrain.sandblaster.method import End
from disttrain.sandblaster.operations import PARAMETERS, Dots
from disttrain.sandblaster.scheme import Verdict
from oracles import batch_method
from oracles.batch_method import BatchMethod, Method
from oracles.plain_lbfgs import PlainLbfgs

ACCEPTED = Verdict.ACCEPTED


def largest_difference(points: list[Vector], reference: list[Vector]) -> float:
    """The largest distance of two iterates, against the length of the reference's."""
    pairs = zip(points[1:], reference[1:], strict=True)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_forty_iterates_are_those_of_the_two_loops(problem: Problem) -> None:
    reference = iterates(PlainLbfgs(RULES), shards_of(problem), 40)

    for shards in (1, 2, 3, 5):
        points = iterates(fused(), shards_of(problem, shards), 40)

        assert len(points) == 40
        assert largest_difference(points, reference) < 1e-10, f"{shards} shards"


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_the_same_run_twice_gives_the_same_bits(problem: Problem) -> None:
    first, second = (iterates(fused(), shards_of(problem, 3), 15)[-1] for _ in range(2))

    assert first.tobytes() == second.tobytes()


def test_an_evaluation_costs_two_commands() -> None:
    method, engine = fused(replace(RULES, exact_every=1000)), shards_of(rosenbrock(), 2)

    iterates(method, engine, 40)

    assert engine.commands == 2 * len(engine.evaluations)


@pytest.mark.parametrize("history", [1, 3, 10])
def test_an_evaluation_costs_two_products_for_each_pair_and_two_more(history: int) -> None:
    method, engine = fused(directions=Lbfgs(history=history)), shards_of(rosenbrock())
    products = {}
    request = method.advance(None)
    while request is not None and method.progress.iteration < history + 5:
        if request.evaluates:
            (dots,) = (each for each in request.measure if isinstance(each, Dots))
            products[method.progress.iteration] = len(dots.others)
        request = method.advance(engine.answer(request))

    assert products[history] == products[history + 4] == 2 * history + 2


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_the_first_step_is_a_careful_one_and_the_others_are_tried_as_they_are(
    problem: Problem,
) -> None:
    method = fused()
    iterates(method, shards_of(problem, 2), 6)

    _, gradient = problem.evaluate(problem.start)
    accepted = [one.evaluation for one in method.state.decisions if one.verdict is ACCEPTED]
    tried = {one.evaluation: one.step for one in method.state.decisions}
    assert tried[2] == pytest.approx(min(1.0, 1.0 / np.abs(gradient).sum()))
    assert [tried[evaluation + 1] for evaluation in accepted[:-1]] == [1.0] * 5


def test_the_products_are_computed_from_the_vectors_now_and_then() -> None:
    often, seldom = shards_of(rosenbrock()), shards_of(rosenbrock())

    iterates(fused(replace(RULES, exact_every=5)), often, 31)
    iterates(fused(replace(RULES, exact_every=1000)), seldom, 31)

    assert often.commands == seldom.commands + 6


def test_products_that_may_have_cancelled_are_computed_from_the_vectors() -> None:
    """As far as an inner product's rounding leaves too little of them."""
    careful, engine = Lbfgs(rounding=1.0, tolerance=1e-3), shards_of(rosenbrock())

    iterates(fused(replace(RULES, exact_every=1000), careful), engine, 20)

    assert engine.commands == 2 * len(engine.evaluations) + 19


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_float32_vectors_lead_about_as_far_as_one_operation_at_a_time(problem: Problem) -> None:
    rules = replace(RULES, change_tolerance=1e-6)
    method, plain = fused(rules, Lbfgs(rounding=2.0**-22, tolerance=1e-3)), PlainLbfgs(rules)

    iterates(method, shards_of(problem, 2, np.float32), evaluations=1000)
    iterates(plain, shards_of(problem, 2, np.float32), evaluations=1000)

    ours, theirs = method.progress, plain.progress
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-3, abs=1e-3)
    assert ours.evaluations <= 2 * theirs.evaluations


def test_a_run_goes_on_from_any_state_that_was_written_down() -> None:
    problem = rosenbrock(10)
    undisturbed = shards_of(problem)
    iterates(fused(), undisturbed, 25)
    reference = undisturbed.vector(PARAMETERS)
    method, engine = fused(), shards_of(problem)
    request = method.advance(None)

    while request is not None and method.progress.iteration < 25:
        answer = engine.answer(request)
        written = batch_method.STATE_JSON.write(method.state)
        method = BatchMethod(Descent(RULES, Lbfgs()), batch_method.STATE_JSON.read(written))
        assert batch_method.STATE_JSON.write(method.state) == written
        request = method.advance(answer)

    assert len(written) < 20_000
    assert method.progress.iteration == 25
    assert engine.vector(PARAMETERS).tobytes() == reference.tobytes()


def test_it_ends_where_the_gradient_is_small() -> None:
    method = fused(replace(RULES, gradient_tolerance=1e-6))

    last = iterates(method, shards_of(rosenbrock(4)))[-1]

    assert method.progress.end is End.GRADIENT
    assert method.progress.largest <= 1e-6
    assert np.allclose(last, 1.0, atol=1e-5)


def test_it_ends_where_the_loss_changes_no_more() -> None:
    method, engine = fused(replace(RULES, change_tolerance=1e-3)), shards_of(PROBLEMS["softmax"])

    iterates(method, engine)

    assert method.progress.end is End.CHANGE
    assert method.progress.loss == min(engine.evaluations)


@pytest.mark.parametrize("make", [fused, PlainLbfgs])
def test_three_small_changes_in_a_row_are_an_end_and_one_on_the_way_is_none(
    make: Callable[[DescentRules], Method],
) -> None:
    problem = PROBLEMS["softmax"]
    method, engine = make(replace(RULES, change_tolerance=1e-3)), shards_of(problem)

    losses = [problem.evaluate(point)[0] for point in iterates(method, engine)]

    changes = itertools.pairwise(losses)
    small = [before - after <= 1e-3 * max(before, 1.0) for before, after in changes]
    assert method.progress.end is End.CHANGE
    assert small[-3:] == [True] * 3
    assert any(small[:-3]), "a patience of one would have ended here"
    assert not any(all(small[first : first + 3]) for first in range(len(small) - 3))


def test_it_ends_at_once_where_the_loss_is_no_number() -> None:
    method = fused()
    nowhere = Problem("nowhere", np.ones(3), lambda x: (float("nan"), x))

    iterates(method, shards_of(nowhere))

    assert method.progress.end is End.NOT_FINITE


def test_a_gradient_that_lies_ends_in_no_descent() -> None:
    def lying(x: Vector) -> tuple[float, Vector]:
        return float(x @ x), -2 * x

    rules = replace(RULES, search=WolfeRules(most_evaluations=8))
    method, engine = fused(rules), shards_of(Problem("lying", np.ones(3), lying))

    iterates(method, engine)

    assert method.progress.end is End.NO_DESCENT
    assert engine.vector(PARAMETERS).tolist() == [1.0, 1.0, 1.0]


def falling_to_a_wall(x: Vector) -> tuple[float, Vector]:
    """From the first coordinate's 1 on there is no number."""
    if x[0] >= 1:
        return float("inf"), np.full(len(x), np.nan)
    return float(x[1:] @ x[1:]) - 0.2 * float(x[0]), np.concatenate([[-0.2], 2 * x[1:]])


@pytest.mark.parametrize("directions", [Lbfgs(), SteepestDescent(), ConjugateGradient()])
def test_a_gradient_that_overflows_at_a_trial_point_is_no_fault(directions: Directions) -> None:
    """Its products with others are infinities of both signs."""
    evaluations = itertools.count(1)

    def overflowing_once(x: Vector) -> tuple[float, Vector]:
        steepness = np.array([1.0, 10.0, 0.3])
        gradient = steepness * x
        if next(evaluations) == 6:
            return math.inf, np.concatenate([[math.inf], gradient[1:]])
        return float(x @ gradient) / 2, gradient

    method = BatchMethod(Descent(replace(RULES, gradient_tolerance=1e-6), directions))

    iterates(method, shards_of(Problem("steep", np.array([3.0, -2.0, 1.0]), overflowing_once)))

    assert method.progress.non_finite == 1
    assert method.progress.end is End.GRADIENT


def barrier(x: Vector) -> tuple[float, Vector]:
    """Lowest at 1, no number from 0 down."""
    if np.any(x <= 0):
        return float("nan"), np.full(len(x), np.nan)
    return float(np.sum(x - np.log(x))) / 1000, (1 - 1 / x) / 1000


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("directions", [Lbfgs(), SteepestDescent(), ConjugateGradient()])
def test_a_loss_that_falls_up_to_where_it_is_no_number_has_not_converged(
    directions: Directions, kind: type[np.float32 | np.float64]
) -> None:
    method = BatchMethod(Descent(replace(RULES, change_tolerance=1e-9), directions))

    iterates(method, shards_of(Problem("wall", np.full(4, 0.3), falling_to_a_wall), 2, kind))

    assert method.progress.end is End.NO_MINIMUM
    assert method.progress.non_finite > 0


@pytest.mark.parametrize("directions", [Lbfgs(), SteepestDescent(), ConjugateGradient()])
def test_a_loss_that_falls_without_an_end_has_not_converged(directions: Directions) -> None:
    """At last no step is seen in these numbers, so that the loss changes no more."""
    method = BatchMethod(Descent(replace(RULES, change_tolerance=1e-9), directions))
    falling = Problem("falling", np.ones(4), lambda x: (-float(x @ x), -2 * x))

    iterates(method, shards_of(falling))

    assert method.progress.end is End.NO_MINIMUM


def test_trial_points_that_are_no_numbers_do_not_keep_it_from_a_minimum() -> None:
    rules = replace(RULES, change_tolerance=1e-9)
    method = fused(rules)

    last = iterates(method, shards_of(Problem("barrier", np.full(4, 3.0), barrier)))[-1]

    assert method.progress.end is End.CHANGE
    assert method.progress.non_finite > 0
    assert np.allclose(last, 1.0, atol=1e-2)


def test_a_state_that_was_written_before_such_points_were_counted_can_be_read() -> None:
    state = json.loads(batch_method.STATE_JSON.write(fused().state))
    for owner, name in ((state[0], "cuts"), (state[0], "cut_from")):
        del owner[name]
    del state[0]["progress"]["non_finite"]

    assert batch_method.STATE_JSON.read(json.dumps(state).encode()) == fused().state


def test_a_direction_that_leads_nowhere_is_followed_by_the_steepest_one() -> None:
    """A kink: beyond it the remembered curvature is of another function."""

    def kinked(x: Vector) -> tuple[float, Vector]:
        steep = np.where(x > 0, 1.0, 1000.0)
        return float(steep @ np.abs(x)) + 0.5 * float(x @ x), steep * np.sign(x) + x

    rules = replace(RULES, search=WolfeRules(most_evaluations=5), gradient_tolerance=1e-9)
    method, engine = fused(rules), shards_of(Problem("kinked", np.array([3.0, 2.0]), kinked))

    iterates(method, engine, evaluations=300)

    assert method.progress.end is End.NO_DESCENT
    assert method.progress.loss < 1.0


@pytest.mark.parametrize("history", [1, 3])
def test_a_short_history_is_kept_in_few_vectors(history: int) -> None:
    engine = shards_of(rosenbrock(10))

    iterates(fused(directions=Lbfgs(history=history)), engine, 20)

    slots = {name for name in engine.shards[0].names if name[1:].isdecimal()}
    assert slots == {f"{kind}{slot}" for kind in "sy" for slot in range(history)}
