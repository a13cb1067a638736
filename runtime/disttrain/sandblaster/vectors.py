"""One shard's part of the named vectors, and the orders on it.

An order is carried out block by block: all its operations on the first block, then on the next.
So what one operation wrote is still in the processor's cache when the next one reads it, and a
direction of twenty vectors moves each of them through memory once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from disttrain.sandblaster import kernels
from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.errors import UnknownVector
from disttrain.sandblaster.kernels import Array, Kernel
from disttrain.sandblaster.operations import Operation

BLOCK_ELEMENTS = 8192
"""Inner products are added up in the vectors' own precision within a block, in float64 between."""


class Vectors:
    """The parts of all vectors that one shard holds. Belongs to one thread."""

    def __init__(self, elements: int, element_type: type[np.floating[Any]]) -> None:
        self.elements = elements
        self._type = element_type
        self._arrays: dict[str, Array] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The vectors that there are."""
        return tuple(self._arrays)

    def __getitem__(self, name: str) -> Array:
        """The vector's part, as it is. Raises UnknownVector."""
        return _read(self._arrays, name)

    def make(self, name: str) -> Array:
        """The vector's part; zeros if it is new."""
        return self._made(self._arrays, name)

    def perform(self, order: Sequence[Operation]) -> tuple[float, ...]:
        """Carry out an order; its scalars. Raises UnknownVector before anything has changed."""
        arrays = dict(self._arrays)
        found = (self._prepared(operation, arrays) for operation in order)
        prepared = [kernel for kernel in found if kernel is not None]
        for first in range(0, self.elements, BLOCK_ELEMENTS):
            block = slice(first, min(first + BLOCK_ELEMENTS, self.elements))
            for kernel in prepared:
                kernel.on(block)
        self._arrays = arrays
        return tuple(scalar for kernel in prepared for scalar in kernel.scalars)

    def _prepared(self, operation: Operation, arrays: dict[str, Array]) -> Kernel | None:
        """Names mean what they mean at this place of the order: exchanges come before."""
        if isinstance(operation, ops.Swap):
            first, second = operation.first, operation.second
            arrays[first], arrays[second] = self._made(arrays, second), self._made(arrays, first)
        return kernels.of(
            operation, lambda name: _read(arrays, name), lambda name: self._made(arrays, name)
        )

    def _made(self, arrays: dict[str, Array], name: str) -> Array:
        if name not in arrays:
            arrays[name] = np.zeros(self.elements, self._type)
        return arrays[name]


def _read(arrays: dict[str, Array], name: str) -> Array:
    found = arrays.get(name)
    if found is None:
        message = f"no vector '{name}' here; there are {', '.join(arrays) or 'none'}"
        raise UnknownVector(message)
    return found
