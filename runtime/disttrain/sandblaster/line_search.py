"""How far to go along a direction. Pure: a search is a value that each evaluation replaces.

All searches have `stage`, `trial` and `advanced(point)`.

Armijo: backtracking until the loss falls enough, for batches whose next gradient is of other data.

Strong Wolfe: the loss fell enough, and the slope is flat enough (Nocedal and Wright, Numerical
Optimization (2006), algorithms 3.5 and 3.6 with cubic interpolation). Where both losses are the
same but for their rounding, the slopes tell whether it fell enough: the approximate Wolfe
conditions of Hager and Zhang, A new conjugate gradient method with guaranteed descent and an
efficient line search (2005), equation 4.1.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import Field


class Stage(StrEnum):
    """How far a line search is."""

    TRYING = "trying"
    """The loss and the slope at `trial` are wanted."""
    ACCEPTED = "accepted"
    """The point evaluated last is the one."""
    FAILED = "failed"
    """No point is lower than the beginning, as far as numbers can tell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Loss and slope along the direction, `step` times the direction away from the beginning."""

    step: float
    loss: float
    slope: float

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.slope)


def is_low_enough(point: Point, start: Point, decrease: float) -> bool:
    """Armijo's condition: the loss fell by this fraction of what the first slope promised."""
    return point.is_finite and point.loss <= start.loss + decrease * point.step * start.slope


def cubic_minimum(first: Point, second: Point) -> float | None:
    """Where the cubic through two points with their slopes is lowest; None: it has no minimum.

    Nocedal and Wright, Numerical Optimization (2006), equation 3.59.
    """
    if not (first.is_finite and second.is_finite) or first.step == second.step:
        return None
    left, right = sorted((first, second), key=lambda point: point.step)
    secant = (left.loss - right.loss) / (left.step - right.step)
    middle = left.slope + right.slope - 3 * secant
    square = middle * middle - left.slope * right.slope
    if not square >= 0:
        return None
    root = math.sqrt(square)
    width = right.slope - left.slope + 2 * root
    if width == 0:
        return None
    return right.step - (right.step - left.step) * (right.slope + root - middle) / width


_LEAST, _MOST = 0.1, 0.5
"""Of the last step: how much of it the next one keeps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmijoRules:
    """What the search asks for."""

    kind: Literal["armijo"] = "armijo"
    decrease: float = 1e-4
    """Fraction of the decrease that the first slope promises."""
    most_evaluations: int = 20

    def begin(self, start: Point, first_step: float) -> "ArmijoSearch":
        """A search from a point with a negative slope."""
        return ArmijoSearch(rules=self, start=start, trial=first_step)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmijoSearch:
    """A search that shortens its step."""

    kind: Literal["armijo"] = "armijo"
    rules: ArmijoRules
    start: Point
    trial: float
    stage: Stage = Stage.TRYING
    evaluations: int = 0

    def advanced(self, point: Point) -> "ArmijoSearch":
        known = replace(self, evaluations=self.evaluations + 1)
        if is_low_enough(point, self.start, self.rules.decrease):
            return replace(known, stage=Stage.ACCEPTED)
        if known.evaluations >= self.rules.most_evaluations:
            return replace(known, stage=Stage.FAILED)
        return replace(known, trial=self._shorter(point))

    def _shorter(self, point: Point) -> float:
        wanted = cubic_minimum(self.start, point)
        if wanted is None:
            return _LEAST * point.step if not point.is_finite else _MOST * point.step
        return min(max(wanted, _LEAST * point.step), _MOST * point.step)


_EXTEND_LEAST, _EXTEND_MOST = 1.1, 10.0
"""How much longer the next step may be while no minimum is enclosed."""
_MARGIN = 0.1
"""Of the interval: a trial keeps so far away from its ends."""
_SHRINKS = 2 / 3
"""Two evaluations that leave more of the interval than this are followed by its middle."""
_NARROW = 1e-12
"""An interval this small, against its ends, holds nothing new."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WolfeRules:
    """What the search asks for."""

    kind: Literal["strong_wolfe"] = "strong_wolfe"
    decrease: float = 1e-4
    """Fraction of the decrease that the first slope promises."""
    curvature: float = 0.9
    """The slope that is flat enough, as a fraction of the first one."""
    most_evaluations: int = 20
    resolution: float = 0.0
    """Of a loss, against its size: a rise by no more counts as none. 0: losses are exact."""

    def begin(self, start: Point, first_step: float) -> "WolfeSearch":
        return WolfeSearch(rules=self, start=start, trial=first_step, low=start)


@dataclass(frozen=True, kw_only=True, slots=True)
class WolfeSearch:
    """A search that first encloses a minimum, then narrows."""

    kind: Literal["strong_wolfe"] = "strong_wolfe"
    rules: WolfeRules
    start: Point
    trial: float
    low: Point
    """The lowest point that fell enough, or the beginning."""
    high: Point | None = None
    """The other end of the interval that encloses a minimum; None: there is none yet."""
    widths: tuple[float, ...] = ()
    """Of the last two intervals, the newest first."""
    is_settling: bool = False
    """The trial is a point already known, of which only the gradient is wanted again."""
    stage: Stage = Stage.TRYING
    evaluations: int = 0

    def advanced(self, point: Point) -> "WolfeSearch":
        known = replace(self, evaluations=self.evaluations + 1)
        if self.is_settling or _is_good(self, point):
            return replace(known, stage=Stage.ACCEPTED)
        found = _enclosed(known, point) if self.high is None else _narrowed(known, self.high, point)
        if found.evaluations >= self.rules.most_evaluations or _is_narrow(found):
            return _settled(found, point)
        return found if found.high is None else _inside(found, found.high)


def is_flat(search: WolfeSearch, point: Point) -> bool:
    return abs(point.slope) <= search.rules.curvature * -search.start.slope


def _is_good(search: WolfeSearch, point: Point) -> bool:
    return (_fell(search, point) and is_flat(search, point)) or _is_good_by_slopes(search, point)


def _is_good_by_slopes(search: WolfeSearch, point: Point) -> bool:
    """Of a quadratic, Armijo's condition is the upper bound on the slope."""
    rules, start = search.rules, search.start
    if not (point.is_finite and rules.resolution > 0):
        return False
    is_as_low = abs(point.loss - start.loss) <= rules.resolution * abs(start.loss)
    most = (2 * rules.decrease - 1) * start.slope
    return is_as_low and most >= point.slope >= rules.curvature * start.slope


def _fell(search: WolfeSearch, point: Point) -> bool:
    is_lower = search.low.step == 0 or point.loss < search.low.loss
    return is_lower and is_low_enough(point, search.start, search.rules.decrease)


def _enclosed(search: WolfeSearch, point: Point) -> WolfeSearch:
    if not _fell(search, point):
        return replace(search, high=point)
    if point.slope >= 0:
        return replace(search, low=point, high=search.low)
    return replace(search, low=point, trial=_further(search.low, point))


def _narrowed(search: WolfeSearch, high: Point, point: Point) -> WolfeSearch:
    if not _fell(search, point):
        return replace(search, high=point)
    rises_towards_high = point.slope * (high.step - search.low.step) >= 0
    return replace(search, low=point, high=search.low if rises_towards_high else high)


def _inside(search: WolfeSearch, high: Point) -> WolfeSearch:
    width = abs(high.step - search.low.step)
    lowest = min(high.step, search.low.step)
    wanted = cubic_minimum(search.low, high)
    if wanted is None or _is_slow(search, width):
        wanted = lowest + (0.5 if high.is_finite else _MARGIN) * width
    inside = min(max(wanted, lowest + _MARGIN * width), lowest + (1 - _MARGIN) * width)
    return replace(search, trial=inside, widths=(width, *search.widths[:1]))


def _is_slow(search: WolfeSearch, width: float) -> bool:
    return len(search.widths) > 1 and width > _SHRINKS * search.widths[1]


def _is_narrow(search: WolfeSearch) -> bool:
    if search.high is None:
        return False
    low, high = search.low.step, search.high.step
    return abs(high - low) <= _NARROW * max(abs(high), abs(low))


def _settled(search: WolfeSearch, point: Point) -> WolfeSearch:
    """With the lowest point, if there is one, since it fell enough."""
    if search.low.step == 0:
        return replace(search, stage=Stage.FAILED)
    if search.low == point:
        return replace(search, stage=Stage.ACCEPTED)
    return replace(search, trial=search.low.step, is_settling=True)


def _further(before: Point, point: Point) -> float:
    """The next step while the loss still falls: where the cubic is lowest, within limits."""
    gone = point.step - before.step
    least, most = point.step + (_EXTEND_LEAST - 1) * gone, point.step + _EXTEND_MOST * gone
    wanted = cubic_minimum(before, point)
    if wanted is None or wanted <= point.step:
        return most
    return min(max(wanted, least), most)


SearchRules: TypeAlias = Annotated[WolfeRules | ArmijoRules, Field(discriminator="kind")]
Search: TypeAlias = Annotated[WolfeSearch | ArmijoSearch, Field(discriminator="kind")]
