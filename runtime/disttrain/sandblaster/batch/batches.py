"""Which groups form a batch, and their gradients' sum. Pure.

Groups whose gradients become one sum are a run, and a batch is one run or several. Terms come in
any order, and the bits of the sum depend on their places alone.

Which groups form a batch that is smaller than the data is a function of seed and number.
Multi-batch L-BFGS (Berahas, Nocedal and Takac 2016, A multi-batch L-BFGS method for machine
learning) wants neighbouring batches to share samples: a change of the gradient is a change of the
parameters' doing only if both gradients are of the same samples.

All passes over the data are one stream of groups, and a batch is a window on it. So every pass
uses every group, and what a window shares with the next one has left the stream for good after it.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from disttrain.sandblaster.method import Part
from disttrain.sandblaster.operations import AFTER, BEFORE, MIDDLE


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """The groups of one batch; no group comes twice."""

    before: tuple[int, ...]
    """Those that the batch before has as `after`, in the same order."""
    middle: tuple[int, ...]
    after: tuple[int, ...]

    def runs(self, part: Part) -> tuple[Run, ...]:
        """What is summed apart from each other."""
        runs = (
            Run(vector=BEFORE, groups=self.before),
            Run(vector=MIDDLE, groups=self.middle),
            Run(vector=AFTER, groups=self.after),
        )
        return runs if part is Part.WHOLE else runs[1:]


@dataclass(frozen=True, kw_only=True, slots=True)
class Batches:
    """All batches of a job. Groups are numbered from 0 and fixed; so are their portions."""

    seed: int
    groups: int
    """Of the data."""
    size: int
    """Groups of a batch: fewer than the data has, and more than both overlaps together."""
    overlap: int
    """Groups that neighbouring batches share, at least 1."""

    def __post_init__(self) -> None:
        if not 2 <= 2 * self.overlap < self.size < self.groups:
            message = (
                f"batches of {self.size} groups that share {self.overlap} cannot be made of "
                f"{self.groups}: take smaller portions, fewer to a group, or all data as one batch"
            )
            raise ValueError(message)

    def batch(self, number: int) -> Batch:
        """The batches are numbered from 0."""
        first = number * (self.size - self.overlap)
        window = tuple(self._at(position) for position in range(first, first + self.size))
        return Batch(
            before=window[: self.overlap],
            middle=window[self.overlap : -self.overlap],
            after=window[-self.overlap :],
        )

    def _at(self, position: int) -> int:
        number, place = divmod(position, self.groups)
        # The same group in two passes is then at least a window apart, so that none holds it twice.
        shuffled = self.groups - self.size + 1
        return _pass(self.seed, self.groups, shuffled, number)[place]


@lru_cache(maxsize=4)
def _pass(seed: int, groups: int, shuffled: int, number: int) -> tuple[int, ...]:
    """The order of all groups in one pass: shuffled among so many neighbours."""
    chance = random.Random(f"batches {seed} {number}")
    order: list[int] = []
    for first in range(0, groups, shuffled):
        block = list(range(first, min(first + shuffled, groups)))
        chance.shuffle(block)
        order += block
    return tuple(order)
