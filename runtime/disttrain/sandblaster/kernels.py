"""The operations on stretches of vectors. Each class is one operation, ready to be carried out.

Vectors are rows of a matrix, so that a product with several neighbours is one call: it reads each
of them once, as fast as memory gives them. A stretch is some whole blocks, or what is left after
the last one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from disttrain.sandblaster import operations as ops

Array: TypeAlias = NDArray[np.floating[Any]]

BLOCK_ELEMENTS = 8192
"""Inner products are added up in the vectors' own precision within a block, in float64 between."""
STRETCH_ELEMENTS = 8 * BLOCK_ELEMENTS
"""The longest stretch: what one operation leaves of it in the cache, the next one finds there."""
_FEW_ROWS = 2
"""So many neighbours are faster added up one by one."""


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """Where a vector lies."""

    matrix: Array
    index: int
    """In the matrix."""
    place: int
    """Among all vectors, whichever matrix they are in."""

    @property
    def values(self) -> Array:
        row: Array = self.matrix[self.index]
        return row


Find: TypeAlias = Callable[[str], Row]
"""From a vector's name to its place."""


class Kernel(Protocol):
    """An operation on the stretches of its vectors, one after the other."""

    @property
    def scalars(self) -> Sequence[float]:
        """The answer, after the last stretch."""
        ...

    def on(self, stretch: slice) -> None:
        """Carry it out on one stretch."""
        ...


class Reduce:
    """Inner products of one vector with several, in float64 between blocks."""

    def __init__(self, vector: Row, others: Sequence[Row]) -> None:
        self._vector = vector.values
        self._runs = [(rows, np.array(places)) for rows, places in runs(others)]
        self._sums = np.zeros(len(others))

    @property
    def scalars(self) -> Sequence[float]:
        return [float(one) for one in self._sums]

    def on(self, stretch: slice) -> None:
        part = _blocks(self._vector[stretch])[:, :, np.newaxis]
        found = np.empty((len(part), len(self._sums)))
        for rows, places in self._runs:
            found[:, places] = np.matmul(_blocks_of_rows(rows[:, stretch]), part)[:, :, 0]
        for products in found:
            self._sums += products


class ReduceAll:
    """Inner products of several vectors with each other, in float64 between blocks."""

    def __init__(self, vectors: Sequence[Row]) -> None:
        self._runs = [(rows, np.array(places)) for rows, places in runs(vectors)]
        self._sums = np.zeros((len(vectors), len(vectors)))

    @property
    def scalars(self) -> Sequence[float]:
        """See `Kernel.scalars`: row by row, up to the diagonal."""
        return [float(one) for one in self._sums[np.tril_indices(len(self._sums))]]

    def on(self, stretch: slice) -> None:
        cut = [(_blocks_of_rows(rows[:, stretch]), places) for rows, places in self._runs]
        for at, (blocks, places) in enumerate(cut):
            for others, their_places in cut[: at + 1]:
                there, back = np.ix_(places, their_places), np.ix_(their_places, places)
                for products in np.matmul(blocks, others.transpose(0, 2, 1)):
                    self._sums[there] += products
                    if others is not blocks:
                        self._sums[back] += products.T


class Measure:
    """The sum and the largest of the absolute values."""

    def __init__(self, vector: Row) -> None:
        self.scalars = [0.0, 0.0]
        self._vector = vector.values
        self._absolute = np.empty(STRETCH_ELEMENTS, self._vector.dtype)
        self._ones = np.ones(BLOCK_ELEMENTS, self._vector.dtype)

    def on(self, stretch: slice) -> None:
        part = self._vector[stretch]
        absolute = _blocks(np.abs(part, out=self._absolute[: len(part)]))
        for block in absolute:
            self.scalars[0] += float(np.dot(block, self._ones[: len(block)]))
        self.scalars[1] = float(np.maximum(self.scalars[1], absolute.max()))


class Write:
    """target = a sum of vectors, each times its factor."""

    scalars: Sequence[float] = ()

    def __init__(self, target: Row, terms: Sequence[tuple[Row, float]]) -> None:
        self._target = target.values
        kind = self._target.dtype
        factors = np.array([factor for _, factor in terms], kind)
        found = runs([row for row, _ in terms], at_least=_FEW_ROWS + 1)
        self._runs = [(rows, factors[np.array(places)]) for rows, places in found]
        # The sum is complete before it is written: the target may be in it.
        is_read = any(row.place == target.place for row, _ in terms)
        self._sum = np.empty(STRETCH_ELEMENTS, kind) if is_read else None
        self._product = np.empty(STRETCH_ELEMENTS, kind)

    def on(self, stretch: slice) -> None:
        target = self._target[stretch]
        into = target if self._sum is None else self._sum[: len(target)]
        first, *others = self._runs
        total = _multiplied(*first, stretch, into)
        for rows, factors in others:
            more = _multiplied(rows, factors, stretch, self._product[: len(target)])
            total = np.add(total, more, out=into)
        if total is not target:
            np.copyto(target, total)


def runs(rows: Sequence[Row], at_least: int = 1) -> Iterator[tuple[Array, list[int]]]:
    """Neighbouring rows as one matrix, with the places that they have in the sequence.

    Fewer than `at_least` come one by one, as matrices of one row.
    """
    for places in _neighbours(rows):
        parts = [places] if len(places) >= at_least else [[place] for place in places]
        for part in parts:
            yield _matrix([rows[place] for place in part]), part


def _neighbours(rows: Sequence[Row]) -> Iterator[list[int]]:
    by_place = sorted(range(len(rows)), key=lambda at: rows[at].place)
    found: list[int] = []
    for at in by_place:
        if found and not _is_next(rows[found[-1]], rows[at]):
            yield found
            found = []
        found.append(at)
    if found:
        yield found


def _is_next(one: Row, other: Row) -> bool:
    return one.matrix is other.matrix and other.place == one.place + 1


def _matrix(rows: Sequence[Row]) -> Array:
    first = rows[0]
    part: Array = first.matrix[first.index : first.index + len(rows)]
    return part


def _blocks(stretch: Array) -> Array:
    """A stretch of a vector, or of several, as blocks (..., blocks, elements); nothing moves."""
    *several, elements = stretch.shape
    width = min(elements, BLOCK_ELEMENTS)
    return stretch.reshape(*several, elements // width, width)


def _blocks_of_rows(rows: Array) -> Array:
    """Stretches of neighbours, block by block: (blocks, rows, elements)."""
    return _blocks(rows).transpose(1, 0, 2)


def _multiplied(rows: Array, factors: Array, stretch: slice, into: Array) -> Array:
    """The sum of rows, each times its factor: `into`, or the row itself if it is all of it."""
    if len(rows) > 1:
        np.matmul(factors, _blocks_of_rows(rows[:, stretch]), out=_blocks(into))
        return into
    single: Array = rows[0, stretch]
    return single if factors[0] == 1 else np.multiply(single, factors[0], out=into)


Touching: TypeAlias = ops.Dots | ops.Gram | ops.Extent | ops.Scale | ops.Copy | ops.Combine
"""Operations that read or write elements."""


def of(operation: Touching, read: Find, write: Find) -> Kernel:
    match operation:
        case ops.Dots():
            return Reduce(read(operation.vector), [read(other) for other in operation.others])
        case ops.Gram():
            return ReduceAll([read(name) for name in operation.vectors])
        case ops.Extent():
            return Measure(read(operation.vector))
        case ops.Scale():
            vector = read(operation.vector)
            return Write(vector, [(vector, operation.factor)])
        case ops.Copy():
            return Write(write(operation.target), [(read(operation.source), 1.0)])
        case ops.Combine():
            terms = [(read(name), factor) for name, factor in operation.terms.items()]
            return Write(write(operation.target), terms)
