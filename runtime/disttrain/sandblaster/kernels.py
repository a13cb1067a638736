"""The operations on blocks of arrays. Each class is one operation, ready to be carried out."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.operations import Operation

Array: TypeAlias = NDArray[np.floating[Any]]
Find: TypeAlias = Callable[[str], Array]
"""From a vector's name to its elements."""


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
    """Inner products of pairs of vectors, in float64 between blocks."""

    def __init__(self, pairs: Sequence[tuple[Array, Array]]) -> None:
        self.scalars = [0.0] * len(pairs)
        self._pairs = pairs

    def on(self, block: slice) -> None:
        """See `Kernel.on`."""
        for index, (left, right) in enumerate(self._pairs):
            self.scalars[index] += float(np.dot(left[block], right[block]))


class Measure:
    """The sum and the largest of the absolute values."""

    def __init__(self, vector: Array) -> None:
        self.scalars = [0.0, 0.0]
        self._vector = vector

    def on(self, block: slice) -> None:
        """See `Kernel.on`."""
        absolute = np.abs(self._vector[block])
        self.scalars[0] += float(absolute.sum())
        self.scalars[1] = float(np.maximum(self.scalars[1], absolute.max()))


class Write:
    """target = a sum of vectors, each times its factor."""

    scalars: Sequence[float] = ()

    def __init__(self, target: Array, terms: Sequence[tuple[Array, float]]) -> None:
        self._target, self._terms = target, terms

    def on(self, block: slice) -> None:
        """See `Kernel.on`. The sum is complete before it is written: the target may be in it."""
        (first, factor), *others = self._terms
        total = first[block] * factor
        for array, times in others:
            total += array[block] * times
        self._target[block] = total


class Product:
    """target = left * right, element by element."""

    scalars: Sequence[float] = ()

    def __init__(self, left: Array, right: Array, target: Array) -> None:
        self._left, self._right, self._target = left, right, target

    def on(self, block: slice) -> None:
        """See `Kernel.on`."""
        np.multiply(self._left[block], self._right[block], out=self._target[block])


def of(operation: Operation, read: Find, write: Find) -> Kernel | None:
    """The kernel of an operation; None if no element is touched."""
    match operation:
        case ops.Dots():
            vector = read(operation.vector)
            return Reduce([(read(other), vector) for other in operation.others])
        case ops.Gram():
            arrays = [read(name) for name in operation.vectors]
            return Reduce(
                [(one, two) for row, one in enumerate(arrays) for two in arrays[: row + 1]]
            )
        case ops.Extent():
            return Measure(read(operation.vector))
        case ops.Multiply():
            left, right = read(operation.left), read(operation.right)
            return Product(left, right, write(operation.target))
        case ops.Swap():
            return None
        case _:
            return _writing(operation, read, write)


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
