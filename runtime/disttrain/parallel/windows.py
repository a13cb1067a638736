"""Windows of a two-dimensional array, and who sends what to whom. Pure.

Coates et al. 2013, section 4.2: each partition has an output window that it fills and an input
window that it needs. What crosses a border is where the two meet.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """Rows or columns [first, end) of an array; before 0 and after the last is padding."""

    first: int
    end: int

    @property
    def length(self) -> int:
        return max(0, self.end - self.first)

    def meets(self, other: "Span") -> "Span":
        """What is in both; of no length if nothing is."""
        first = max(self.first, other.first)
        return Span(first, max(first, min(self.end, other.end)))


class Box(NamedTuple):
    """A window: rows and columns."""

    rows: Span
    columns: Span

    @property
    def area(self) -> int:
        return self.rows.length * self.columns.length

    def meets(self, other: "Box") -> "Box":
        return Box(self.rows.meets(other.rows), self.columns.meets(other.columns))

    def within(self, outer: "Box") -> tuple[slice, slice]:
        """Where it lies in a tensor that holds `outer`."""
        return (
            slice(self.rows.first - outer.rows.first, self.rows.end - outer.rows.first),
            slice(self.columns.first - outer.columns.first, self.columns.end - outer.columns.first),
        )


NOTHING = Box(Span(0, 0), Span(0, 0))
Windows = tuple[Box, ...]
"""One of each partition, by rank."""


def whole(height: int, width: int) -> Box:
    return Box(Span(0, height), Span(0, width))


def split(length: int, parts: int, unit: int = 1) -> list[Span]:
    """Divide as evenly as it goes in whole units; the first parts are the larger ones."""
    units = length // unit
    each, more = divmod(units, parts)
    ends = [unit * (part * each + min(part, more)) for part in range(1, parts)]
    return [Span(first, end) for first, end in zip([0, *ends], [*ends, length], strict=True)]


@dataclass(frozen=True, slots=True)
class Grid:
    """Partitions in rows and columns; rank 1 is right of rank 0."""

    rows: int
    columns: int

    @property
    def size(self) -> int:
        return self.rows * self.columns

    @classmethod
    def of_text(cls, text: str) -> "Grid | None":
        """Of rows and columns, as `2x3`; None: it is none."""
        found = re.fullmatch("([1-9][0-9]{0,3})x([1-9][0-9]{0,3})", text)
        return None if found is None else cls(*map(int, found.groups()))

    def windows(
        self, height: int, width: int, units: tuple[int, int] = (1, 1), partitions: int = 0
    ) -> Windows:
        """Divide an array evenly. Each window begins at a multiple of `units`.

        Of so many partitions the last ones have nothing, if the grid has fewer.
        """
        found = [
            Box(rows, columns)
            for rows in split(height, self.rows, units[0])
            for columns in split(width, self.columns, units[1])
        ]
        return (*found, *(NOTHING for _ in range(self.size, partitions)))


def square_grid(partitions: int) -> Grid:
    """The grid of so many partitions whose windows have the shortest rims."""
    rows = max(each for each in range(1, math.isqrt(partitions) + 1) if partitions % each == 0)
    return Grid(rows, partitions // rows)


@dataclass(frozen=True, slots=True)
class Plan:
    """What each partition sends to each, where all have a window and need another one."""

    owned: Windows
    needed: Windows

    def __post_init__(self) -> None:
        if len(self.owned) != len(self.needed):
            message = f"{len(self.owned)} partitions own and {len(self.needed)} need"
            raise ValueError(message)

    def between(self, source: int, destination: int) -> Box:
        """What `destination` needs of `source`; of no area if that is nothing."""
        return self.owned[source].meets(self.needed[destination])

    def sent_by(self, source: int) -> Iterator[tuple[int, Box]]:
        """The others that need something of it, with what."""
        return self._crossing((rank, self.between(source, rank)) for rank in self.ranks(source))

    def received_by(self, destination: int) -> Iterator[tuple[int, Box]]:
        return self._crossing(
            (rank, self.between(rank, destination)) for rank in self.ranks(destination)
        )

    def crosses(self, rank: int) -> bool:
        """Whether a partition sends or receives anything."""
        return any(True for _ in self.sent_by(rank)) or any(True for _ in self.received_by(rank))

    def ranks(self, but: int) -> Iterator[int]:
        return (rank for rank in range(len(self.owned)) if rank != but)

    @staticmethod
    def _crossing(boxes: Iterator[tuple[int, Box]]) -> Iterator[tuple[int, Box]]:
        return ((rank, box) for rank, box in boxes if box.area)


def on_all(size: int, height: int, width: int) -> Windows:
    """Each partition has all of it."""
    return (whole(height, width),) * size


def on_one(rank: int, size: int, height: int, width: int) -> Windows:
    """One partition has all of it."""
    return tuple(whole(height, width) if each == rank else NOTHING for each in range(size))
