"""The inner products of a few vectors, and of everything that is a combination of them. Pure.

This is all that the coordinator knows of the vectors. A direction in the space that they span, its
slope and the next history pair follow from it by linearity, without asking a shard.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from disttrain.sandblaster.operations import Combination


@dataclass(frozen=True, kw_only=True, slots=True)
class Products:
    """A symmetric table, by the vectors' names in the order in which they came."""

    table: dict[str, dict[str, float]]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.table)

    def of(self, left: Combination, right: Combination) -> float:
        return _sum(self._terms(left, right))

    def magnitude(self, left: Combination, right: Combination) -> float:
        """The same with all terms positive: how much may have cancelled."""
        return _sum(map(abs, self._terms(left, right)))

    def extended(self, name: str, dots: Mapping[str, float]) -> "Products":
        """With one more vector, of which the products with all others and itself are given."""
        table = {known: {**row, name: dots[known]} for known, row in self.table.items()}
        table[name] = {known: dots[known] for known in (*self.table, name)}
        return Products(table=table)

    def defined(self, name: str, combination: Combination) -> "Products":
        """With one more vector, a combination of the others; or another one under a known name."""
        terms = [(self.table[one], factor) for one, factor in combination.items()]
        row = {known: _sum(factor * one[known] for one, factor in terms) for known in self.table}
        square = _sum(factor * row[one] for one, factor in combination.items())
        others = [known for known in self.table if known != name]
        return self.keeping(others).extended(name, {**row, name: square})

    def keeping(self, names: Iterable[str]) -> "Products":
        kept = tuple(names)
        return Products(
            table={one: {other: self.table[one][other] for other in kept} for one in kept}
        )

    def renamed(self, old: str, new: str) -> "Products":
        """One vector under another name, which nobody has; it becomes the last one."""
        order = [*(name for name in self.table if name != old), old]
        names = {name: new if name == old else name for name in order}
        return Products(
            table={
                names[one]: {names[other]: self.table[one][other] for other in order}
                for one in order
            }
        )

    def _terms(self, left: Combination, right: Combination) -> Iterable[float]:
        for one, factor in left.items():
            row = self.table[one]
            for other, other_factor in right.items():
                yield factor * other_factor * row[other]


def _sum(terms: Iterable[float]) -> float:
    """Exactly rounded. What has no sum, as infinities of both signs, is not a number.

    A gradient that overflows at a trial point is no fault: the line search goes nearer.
    """
    try:
        return math.fsum(terms)
    except (ValueError, OverflowError):
        return math.nan


def of_gram(names: tuple[str, ...], scalars: Iterable[float]) -> Products:
    values = iter(scalars)
    table: dict[str, dict[str, float]] = {name: dict.fromkeys(names, 0.0) for name in names}
    for row, name in enumerate(names):
        for other in names[: row + 1]:
            table[name][other] = table[other][name] = next(values)
    return Products(table=table)
