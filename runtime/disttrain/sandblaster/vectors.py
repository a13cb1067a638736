"""One shard's part of the named vectors, and the programs on them.

A program is carried out stretch by stretch: all its operations on the first one, then on the next.
So what one operation wrote is still in the processor's cache when the next one reads it, and a
direction of twenty vectors moves each of them through memory once.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import DTypeLike

from disttrain.sandblaster import kernels
from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.errors import UnknownVector
from disttrain.sandblaster.kernels import BLOCK_ELEMENTS, STRETCH_ELEMENTS, Array, Kernel, Row
from disttrain.sandblaster.operations import Operation

_ROWS = 32
"""Vectors that lie side by side. A row takes no memory before something is written to it."""


class Vectors:
    """The parts of all vectors that one shard holds. Belongs to one thread."""

    def __init__(self, elements: int, element_type: DTypeLike) -> None:
        self.elements = elements
        self._type = element_type
        self._rows: dict[str, Row] = {}
        self._matrices: list[Array] = []
        self._contents: dict[Row, int] = {}
        self._writes = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._rows)

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(sorted(self._rows, key=lambda name: self._rows[name].place))

    def __getitem__(self, name: str) -> Array:
        """The vector's part, as it is. Raises UnknownVector."""
        return _read(self._rows, name).values

    def make(self, name: str) -> Array:
        """The vector's part, to be written to; zeros if it is new."""
        row = self._made(self._rows, name)
        self._changes(row)
        return row.values

    def content(self, name: str) -> int:
        """A number for its elements: another one after whatever writes to the vector.

        It stays the same under another name, and is 0 as long as nothing was written. Raises
        UnknownVector.
        """
        return self._contents.get(_read(self._rows, name), 0)

    def perform(self, program: Sequence[Operation]) -> tuple[float, ...]:
        """Carry out a program; its scalars. Raises UnknownVector before any element has changed."""
        rows = dict(self._rows)
        prepared = [kernel for one in program for kernel in self._prepared(one, rows)]
        for stretch in _stretches(self.elements):
            for kernel in prepared:
                kernel.on(stretch)
        self._rows = rows
        return tuple(scalar for kernel in prepared for scalar in kernel.scalars)

    def changed_by(
        self, program: Sequence[Operation], committed: Sequence[str] = ()
    ) -> Sequence[Array]:
        """Vectors that a program writes to, as far as they are there; nothing is carried out.

        `committed`: those that it makes of gradients before its operations.
        """
        rows = dict(self._rows)
        found = [rows[name] for name in committed if name in rows]
        for one in program:
            if isinstance(one, ops.Swap):
                self._exchange(one, rows)
            found.extend(rows[name] for name in ops.written_by(one) if name in rows)
        return [row.values for row in found]

    def _prepared(self, operation: Operation, rows: dict[str, Row]) -> Iterator[Kernel]:
        """Names mean what they mean at this place of the program: exchanges come before."""
        if isinstance(operation, ops.Swap):
            self._exchange(operation, rows)
            return
        yield kernels.of(
            operation, lambda name: _read(rows, name), lambda name: self._made(rows, name)
        )
        for name in ops.written_by(operation):
            self._changes(rows[name])

    def _exchange(self, swap: ops.Swap, rows: dict[str, Row]) -> None:
        first, second = swap.first, swap.second
        rows[first], rows[second] = self._made(rows, second), self._made(rows, first)

    def _changes(self, row: Row) -> None:
        self._writes += 1
        self._contents[row] = self._writes

    def _made(self, rows: dict[str, Row], name: str) -> Row:
        if name not in rows:
            place = len(rows)
            matrix, index = divmod(place, _ROWS)
            while len(self._matrices) <= matrix:
                self._matrices.append(np.zeros((_ROWS, self.elements), self._type))
            rows[name] = Row(self._matrices[matrix], index, place)
        return rows[name]


def _stretches(elements: int) -> Iterator[slice]:
    """Some whole blocks at a time, and at last what is less than one."""
    whole = elements - elements % BLOCK_ELEMENTS
    for first in range(0, whole, STRETCH_ELEMENTS):
        yield slice(first, min(first + STRETCH_ELEMENTS, whole))
    if whole < elements:
        yield slice(whole, elements)


def _read(rows: dict[str, Row], name: str) -> Row:
    found = rows.get(name)
    if found is None:
        message = f"no vector '{name}' here; there are {', '.join(rows) or 'none'}"
        raise UnknownVector(message)
    return found
