"""Groups whose gradients become one sum, and the sum: its bits depend on the terms' places alone.

Terms may come in any order. A batch is one run of groups, or several. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Neighbours in the sum's tree. No group is in two runs."""

    vector: str
    """What the mean gradient over the run is called."""
    groups: tuple[int, ...]
    """By their places in the sum."""
    samples: int = 0
    """Of all groups together, once they are known."""
    divisor: float | None = None
    """What makes a mean of their sum, if not the samples."""


def places(runs: Sequence[Run], groups: int) -> Sequence[int]:
    """The groups run by run; without runs so many groups from 0 on."""
    return [group for run in runs for group in run.groups] if runs else range(groups)


T = TypeVar("T")


class Folding(Generic[T]):
    """Neighbours are added, then neighbours of those sums, and so on; terms come in any order.

    Holds one value for each part of this tree that is complete: with terms that come nearly in
    order, about as many as the tree is high. A value without a neighbour goes up a level alone.
    """

    def __init__(self, terms: int, add: Callable[[T, T], T]) -> None:
        self.total: T | None = None
        """The sum, once all terms are in."""
        self._terms = terms
        self._add = add
        self._parts: dict[tuple[int, int], T] = {}
        """By level and place."""

    @property
    def held(self) -> int:
        return len(self._parts) + (self.total is not None)

    def put(self, place: int, value: T) -> None:
        """Add the term of a place; each place comes once. It may be changed by the addition."""
        level, width = 0, self._terms
        while width > 1:
            if place ^ 1 < width:
                other = self._parts.pop((level, place ^ 1), None)
                if other is None:
                    self._parts[level, place] = value
                    return
                value = self._add(other, value) if place % 2 else self._add(value, other)
            level, place, width = level + 1, place // 2, (width + 1) // 2
        self.total = value


def pairwise(terms: Sequence[T], add: Callable[[T, T], T]) -> T:
    """The sum of all terms at once, of which there is at least one."""
    folding = Folding(len(terms), add)
    for place, term in enumerate(terms):
        folding.put(place, term)
    if folding.total is None:
        message = "a sum has at least one term"
        raise AssertionError(message)
    return folding.total
