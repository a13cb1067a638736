"""Where what one layout of a model has in its vectors lies in those of another one. Pure.

Both are of the same model, divided over other partitions.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from disttrain.state.layout import ModelLayout, TensorSpec
from disttrain.state.placement import Range
from disttrain.state.vector import Vector


class Move(NamedTuple):
    """Elements that lie one behind the other in both."""

    vector: Vector
    """Of the other layout."""
    first: int
    """In that."""
    offset: int
    """In the wanted range."""
    count: int  # type: ignore[assignment]  # Hides tuple.count, which no one asks of a move.

    @property
    def range(self) -> Range:
        """In the other layout."""
        return Range(self.first, self.first + self.count)


class Moves:
    """From one layout to another."""

    def __init__(self, before: ModelLayout, after: ModelLayout) -> None:
        self._before: defaultdict[str, list[TensorSpec]] = defaultdict(list)
        for spec in before.tensors:
            self._before[spec.name].append(spec)
        self._after = after

    def into(self, vector: Vector, wanted: Range) -> Iterator[Move]:
        """Where the elements of a range of one of the new vectors come from, in no order.

        `vector`: one that is trained stands for all that are as long.
        """
        for spec in self._after.tensors:
            end = spec.first + spec.elements
            if spec.vector != vector or end <= wanted.first or spec.first >= wanted.end:
                continue
            for other in self._before[spec.name]:
                for new, old, count in _common(spec, other):
                    first = max(new, wanted.first)
                    last = min(new + count, wanted.end)
                    if first < last:
                        yield Move(
                            other.vector, old + first - new, first - wanted.first, last - first
                        )


def _common(spec: TensorSpec, other: TensorSpec) -> Iterator[tuple[int, int, int]]:
    """Runs of elements that are in both: where they begin in the one and the other, and how many.

    Counted in the vectors.
    """
    sides = [
        range(max(one.start, two.start), min(one.stop, two.stop))
        for one, two in zip(spec.box, other.box, strict=True)
    ]
    if not all(sides):
        return
    dimensions = len(sides)
    # From here on both have all of it, one element behind the other.
    inner = next(
        (
            each
            for each in range(dimensions, 0, -1)
            if not len(sides[each - 1]) == spec.shape[each - 1] == other.shape[each - 1]
        ),
        0,
    )
    outer, length = sides[: max(0, inner - 1)], math.prod(map(len, sides[max(0, inner - 1) :]))
    rest = [each.start for each in sides[len(outer) :]]
    for place in itertools.product(*outer):
        begin = (*place, *rest)
        yield spec.first + _index(begin, spec), other.first + _index(begin, other), length


def _index(place: Sequence[int], spec: TensorSpec) -> int:
    """Of an element, in the part of the tensor that is there, row after row."""
    found = 0
    for at, side, size in zip(place, spec.box, spec.shape, strict=True):
        found = found * size + at - side.start
    return found
