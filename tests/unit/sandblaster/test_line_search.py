"""Line searches find points that fulfil what they are asked for."""

import math
from collections.abc import Callable

import pytest

from disttrain.sandblaster.line_search import (
    ArmijoRules,
    Point,
    Search,
    SearchRules,
    Stage,
    WolfeRules,
    cubic_minimum,
)

Line = Callable[[float], tuple[float, float]]


def bowl(t: float) -> tuple[float, float]:
    return (t - 3) ** 2, 2 * (t - 3)


def narrow(t: float) -> tuple[float, float]:
    return (t - 1e-4) ** 2 * 1e6, 2e6 * (t - 1e-4)


def far(t: float) -> tuple[float, float]:
    return math.sqrt(1 + (t - 1000) ** 2), (t - 1000) / math.sqrt(1 + (t - 1000) ** 2)


def waves(t: float) -> tuple[float, float]:
    return (t - 8) ** 2 + 10 * math.cos(3 * t), 2 * (t - 8) - 30 * math.sin(3 * t)


def wall(t: float) -> tuple[float, float]:
    """No number beyond 1."""
    return (-math.log(1 - t) - 2 * t, 1 / (1 - t) - 2) if t < 1 else (math.inf, math.nan)


LINES = (bowl, narrow, far, waves, wall)


def searched(rules: SearchRules, line: Line, first_step: float) -> tuple[Search, Point]:
    loss, slope = line(0.0)
    point = Point(step=0.0, loss=loss, slope=slope)
    search: Search = rules.begin(point, first_step)
    while search.stage is Stage.TRYING:
        loss, slope = line(search.trial)
        point = Point(step=search.trial, loss=loss, slope=slope)
        search = search.advanced(point)
    return search, point


@pytest.mark.parametrize("first_step", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("curvature", [0.1, 0.9])
@pytest.mark.parametrize("line", LINES)
def test_both_wolfe_conditions_hold(line: Line, curvature: float, first_step: float) -> None:
    rules = WolfeRules(curvature=curvature)

    search, point = searched(rules, line, first_step)

    assert search.stage is Stage.ACCEPTED
    assert point.step == search.trial > 0
    assert point.loss <= search.start.loss + rules.decrease * point.step * search.start.slope
    assert abs(point.slope) <= curvature * abs(search.start.slope)
    assert search.evaluations <= 15


@pytest.mark.parametrize(
    ("rules", "loss", "slope", "stage"),
    [
        (WolfeRules(), -1.1e-4, 0.0, Stage.ACCEPTED),
        (WolfeRules(), -0.9e-4, 0.0, Stage.TRYING),
        (WolfeRules(), -0.5, -0.89, Stage.ACCEPTED),
        (WolfeRules(), -0.5, -0.91, Stage.TRYING),
        (WolfeRules(), -0.5, 0.89, Stage.ACCEPTED),
        (WolfeRules(), -0.5, 0.91, Stage.TRYING),
        (ArmijoRules(), -1.1e-4, 5.0, Stage.ACCEPTED),
        (ArmijoRules(), -0.9e-4, 0.0, Stage.TRYING),
    ],
)
def test_a_ten_thousandth_of_the_decrease_is_asked_for_and_nine_tenths_of_the_slope_allowed(
    rules: SearchRules, loss: float, slope: float, stage: Stage
) -> None:
    search: Search = rules.begin(Point(step=0.0, loss=0.0, slope=-1.0), 1.0)

    assert search.advanced(Point(step=1.0, loss=loss, slope=slope)).stage is stage


@pytest.mark.parametrize("first_step", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("line", LINES)
def test_armijos_condition_holds(line: Line, first_step: float) -> None:
    rules = ArmijoRules()

    search, point = searched(rules, line, first_step)

    assert search.stage is Stage.ACCEPTED
    assert 0 < point.step <= first_step
    assert point.loss <= search.start.loss + rules.decrease * point.step * search.start.slope


@pytest.mark.parametrize("rules", [WolfeRules(most_evaluations=7), ArmijoRules(most_evaluations=7)])
def test_a_slope_that_lies_is_given_up(rules: SearchRules) -> None:
    search, _ = searched(rules, lambda t: (t, -1.0), 1.0)

    assert search.stage is Stage.FAILED
    assert search.evaluations <= 7


def test_a_search_without_evaluations_left_settles_for_its_lowest_point() -> None:
    """The lowest one came before the last one, so its gradient is asked for once more."""
    rules = WolfeRules(curvature=1e-9, most_evaluations=4)

    search, point = searched(rules, waves, 1.0)

    assert search.stage is Stage.ACCEPTED
    assert search.evaluations in {4, 5}
    assert point.loss < search.start.loss


def test_the_minimum_of_a_cubic_is_found() -> None:
    def cubic(t: float) -> Point:
        return Point(step=t, loss=t**3 - 3 * t, slope=3 * t * t - 3)

    for first, second in ((0.0, 2.0), (2.0, 0.0), (0.5, 0.75)):
        assert cubic_minimum(cubic(first), cubic(second)) == pytest.approx(1.0)


def test_what_is_no_number_has_no_minimum() -> None:
    good, bad = Point(step=0.0, loss=0.0, slope=-1.0), Point(step=1.0, loss=math.inf, slope=0.0)

    assert cubic_minimum(good, bad) is None
    assert cubic_minimum(good, good) is None


@pytest.mark.parametrize(
    ("loss", "slope", "stage"),
    [
        (1.0 + 2.0**-23, 0.5, Stage.ACCEPTED),
        (1.0, -0.89, Stage.ACCEPTED),
        (1.0 - 2.0**-23, 0.5, Stage.ACCEPTED),
        (1.0 + 2.0**-21, 0.5, Stage.TRYING),
        (1.0, 0.9999, Stage.TRYING),
        (1.0, -0.91, Stage.TRYING),
        (math.nan, 0.0, Stage.TRYING),
    ],
)
def test_where_the_loss_tells_nothing_any_more_the_slopes_decide(
    loss: float, slope: float, stage: Stage
) -> None:
    start = Point(step=0.0, loss=1.0, slope=-1.0)
    point = Point(step=1.0, loss=loss, slope=slope)

    assert WolfeRules(resolution=2.0**-22).begin(start, 1.0).advanced(point).stage is stage
    assert WolfeRules().begin(start, 1.0).advanced(point).stage is Stage.TRYING
