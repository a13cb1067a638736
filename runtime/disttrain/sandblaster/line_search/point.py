"""What an evaluation says about a point on the line, and what is made of two of them. Pure."""

import math
from dataclasses import dataclass
from enum import StrEnum


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
