"""How many updates each element of a shard has had: what rules correct their means by. Pure.

The count is the elements' own. Chunks of several pushes come in between one another, a push may
stay incomplete, a parameter may be without a gradient, and a job may go on with other shards.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from disttrain.state.placement import Range


class Steps(NamedTuple):
    """Elements [first, end) of the trained vector have had so many updates."""

    first: int
    end: int
    steps: int


COLUMNS = Steps._fields
"""Of the table in a checkpoint."""


class StepCounts:
    """Those of one range: runs of elements that have had as many."""

    def __init__(self, held: Range, known: Iterable[Iterable[int]] = ()) -> None:
        """`known`: rows of a table, or of several holders' tables; other elements have had none."""
        self._bounds = [held.first, held.end]
        self._steps = [0]
        for row in known:
            first, end, steps = row
            self.add(max(first, held.first), min(end, held.end), steps)

    def within(self, first: int, end: int) -> list[Steps]:
        """The runs of some elements, in their order."""
        begin = bisect_right(self._bounds, first) - 1
        stop = bisect_left(self._bounds, end)
        return [
            Steps(max(first, self._bounds[i]), min(end, self._bounds[i + 1]), self._steps[i])
            for i in range(begin, stop)
        ]

    def add(self, first: int, end: int, steps: int = 1) -> None:
        """Some elements have been updated."""
        if first >= end:
            return
        begin, stop = self._cut(first), self._cut(end)
        for place in range(begin, stop):
            self._steps[place] += steps
        self._join(stop)
        self._join(begin)

    def rows(self) -> list[list[int]]:
        """What a table holds: the runs that have been updated."""
        runs = self.within(self._bounds[0], self._bounds[-1])
        return [list(run) for run in runs if run.steps]

    def _cut(self, at: int) -> int:
        """Let a run begin there; its number."""
        place = bisect_left(self._bounds, at)
        if self._bounds[place] != at:
            self._bounds.insert(place, at)
            self._steps.insert(place, self._steps[place - 1])
        return place

    def _join(self, place: int) -> None:
        """Let the run end with the one before it if both have had as many."""
        if 0 < place < len(self._steps) and self._steps[place - 1] == self._steps[place]:
            del self._bounds[place], self._steps[place]
