"""The operations on blocks of vectors. Each class is one operation, ready to be carried out.

Vectors are rows of a matrix, so that a product with several neighbours is one call: it reads each
of them once, as fast as memory gives them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.operations import Operation

Array: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """Where a vector lies."""

    matrix: Array
    index: int

    @property
    def values(self) -> Array:
        """Its elements, in place."""
        row: Array = self.matrix[self.index]
        return row


Find: TypeAlias = Callable[[str], Row]
"""From a vector's name to its place."""


class Kernel(Protocol):
    """An operation on the blocks of its vectors, one after the other."""

    @property
    def scalars(self) -> Sequence[float]:
        """The answer, after the last block."""
        ...

    def on(self, block: slice) -> None:
        """Carry it out on one block."""
        ...


class Reduce:
    """Inner products of one vector with several, in float64 between blocks."""

    def __init__(self, vector: Row, others: Sequence[Row]) -> None:
        self._vector = vector.values
        self._runs = [(rows, np.array(places)) for rows, places in runs(others)]
        self._sums = np.zeros(len(others))

    @property
    def scalars(self) -> Sequence[float]:
        """See `Kernel.scalars`."""
        return [float(one) for one in self._sums]

    def on(self, block: slice) -> None:
        """See `Kernel.on`."""
        part = self._vector[block]
        for rows, places in self._runs:
            self._sums[places] += rows[:, block] @ part


class Measure:
    """The sum and the largest of the absolute values."""

    def __init__(self, vector: Row) -> None:
        self.scalars = [0.0, 0.0]
        self._vector = vector.values

    def on(self, block: slice) -> None:
        """See `Kernel.on`."""
        absolute = np.abs(self._vector[block])
        self.scalars[0] += float(absolute.sum())
        self.scalars[1] = float(np.maximum(self.scalars[1], absolute.max()))


class Write:
    """target = a sum of vectors, each times its factor."""

    scalars: Sequence[float] = ()

    def __init__(self, target: Row, terms: Sequence[tuple[Row, float]]) -> None:
        self._target = target.values
        kind = self._target.dtype
        factors = np.array([factor for _, factor in terms], kind)
        found = runs([row for row, _ in terms])
        self._runs = [(rows, factors[np.array(places)]) for rows, places in found]

    def on(self, block: slice) -> None:
        """See `Kernel.on`. The sum is complete before it is written: the target may be in it."""
        (rows, factors), *others = self._runs
        total = _product(rows, factors, block)
        for more, times in others:
            total += _product(more, times, block)
        self._target[block] = total


class Product:
    """target = left * right, element by element."""

    scalars: Sequence[float] = ()

    def __init__(self, left: Row, right: Row, target: Row) -> None:
        self._left, self._right, self._target = left.values, right.values, target.values

    def on(self, block: slice) -> None:
        """See `Kernel.on`."""
        np.multiply(self._left[block], self._right[block], out=self._target[block])


def runs(rows: Sequence[Row]) -> Iterator[tuple[Array, list[int]]]:
    """Neighbouring rows as one matrix, with the places that they have in the sequence."""
    by_place = sorted(range(len(rows)), key=lambda at: (id(rows[at].matrix), rows[at].index))
    found: list[int] = []
    for at in by_place:
        if found and not _is_next(rows[found[-1]], rows[at]):
            yield _matrix([rows[one] for one in found]), found
            found = []
        found.append(at)
    if found:
        yield _matrix([rows[one] for one in found]), found


def _is_next(one: Row, other: Row) -> bool:
    return one.matrix is other.matrix and other.index == one.index + 1


def _matrix(rows: Sequence[Row]) -> Array:
    first = rows[0]
    part: Array = first.matrix[first.index : first.index + len(rows)]
    return part


def _product(rows: Array, factors: Array, block: slice) -> Array:
    if len(rows) == 1:
        single: Array = rows[0, block] * factors[0]
        return single
    several: Array = factors @ rows[:, block]
    return several


def of(operation: Operation, read: Find, write: Find) -> Sequence[Kernel]:
    """The kernels of an operation; none if no element is touched."""
    match operation:
        case ops.Dots():
            return [Reduce(read(operation.vector), [read(other) for other in operation.others])]
        case ops.Gram():
            rows = [read(name) for name in operation.vectors]
            return [Reduce(row, rows[: place + 1]) for place, row in enumerate(rows)]
        case ops.Extent():
            return [Measure(read(operation.vector))]
        case ops.Multiply():
            left, right = read(operation.left), read(operation.right)
            return [Product(left, right, write(operation.target))]
        case ops.Swap():
            return []
        case _:
            return [_writing(operation, read, write)]


def _writing(
    operation: ops.Scale | ops.Axpy | ops.Copy | ops.Combine, read: Find, write: Find
) -> Write:
    match operation:
        case ops.Scale():
            vector = read(operation.vector)
            return Write(vector, [(vector, operation.factor)])
        case ops.Axpy():
            source, target = read(operation.source), read(operation.target)
            return Write(target, [(target, 1.0), (source, operation.factor)])
        case ops.Copy():
            return Write(write(operation.target), [(read(operation.source), 1.0)])
        case ops.Combine():
            terms = [(read(name), factor) for name, factor in operation.terms.items()]
            return Write(write(operation.target), terms)
