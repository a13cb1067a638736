"""Whether a pair of L-BFGS says how the loss curves, and what becomes of one that fails. Pure."""

import math
from enum import StrEnum

_LEAST_COSINE = 1e-10
"""Between step and change of the gradient; a pair with less says nothing about curvature."""
_LEAST_SHARE = 0.2
"""Of the curvature that the last direction was made with (Powell 1978; Nocedal and Wright,
Numerical Optimization (2006), procedure 18.2)."""


class WeakPairs(StrEnum):
    """What becomes of pairs without enough curvature."""

    SKIP = "skip"
    """They are forgotten."""
    DAMP = "damp"
    """The change of their gradient is mixed with what was expected of it: Powell's damping."""


def has_curvature(product: float, squares: float) -> bool:
    """Whether the gradient grew along a step. `squares`: of the pair's lengths, multiplied."""
    return math.isfinite(product) and product > _LEAST_COSINE * math.sqrt(max(0.0, squares))


def share_of_change(product: float, expected: float) -> float:
    """How much of the change of the gradient is kept, from 0 to 1; the rest is what was expected.

    `product`: of step and change. `expected`: of the step and the change that the matrix of the
    last direction foretold, which is positive. The mix has `_LEAST_SHARE` of `expected` at least.
    """
    if not product < _LEAST_SHARE * expected:
        return 1.0
    return (1 - _LEAST_SHARE) * expected / (expected - product)
