"""Backtracking until the loss falls enough: for batches whose next gradient is of other data."""

from dataclasses import dataclass, replace
from typing import Literal

from disttrain.sandblaster.line_search.point import Point, Stage, cubic_minimum, is_low_enough

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
