"""Scalars that the task's loss reports, added up over steps."""

import math
from collections.abc import Mapping


class Reported:
    """Written by the compute thread; any thread may read."""

    def __init__(self) -> None:
        self._totals: dict[str, tuple[float, int]] = {}

    def add(self, values: Mapping[str, float]) -> None:
        """Add one step's; what is not finite is left out."""
        for name, value in values.items():
            if math.isfinite(value):
                total, steps = self._totals.get(name, (0.0, 0))
                self._totals[name] = total + value, steps + 1

    @property
    def sums(self) -> dict[str, float]:
        """Over steps, by name."""
        return {name: total for name, (total, _) in self._totals.copy().items()}

    @property
    def steps(self) -> dict[str, int]:
        """That reported each name."""
        return {name: steps for name, (_, steps) in self._totals.copy().items()}
