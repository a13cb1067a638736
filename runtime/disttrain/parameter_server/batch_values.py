"""What a shard holds in a batch method: vectors that change places, the parameters among them.

Accepting a point exchanges the parameters with the trial point, and no element moves: so nobody
may keep a tensor or the memory of a vector, but asks for it at each use.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disttrain import layout
from disttrain.layout import ELEMENT_TYPES, Range
from disttrain.parameter_server.values import Values, bytes_of
from disttrain.sandblaster.names import PARAMETERS, TRIAL, is_of_pair
from disttrain.sandblaster.vectors import Vectors
from disttrain.transport.header import ElementType, Vector

NUMBER_TYPES: Mapping[ElementType, type[np.floating[Any]]] = {
    ElementType.FLOAT32: np.float32,
    ElementType.FLOAT64: np.float64,
}

_PLACES = "places"


class BatchValues(Values):
    """Frozen parameters and buffers lie in tensors of their own, as in every shard."""

    def __init__(
        self, ranges: Mapping[Vector, Range], chunk_bytes: int, names: Sequence[str] = (PARAMETERS,)
    ) -> None:
        """`names` of vectors, in the order of their places: sums of neighbours have other bits."""
        super().__init__(ranges, chunk_bytes)
        self._trial = layout.TRIAL_OF[self.trainable]
        del self._tensors[self.trainable], self._bytes[self.trainable]
        kind = NUMBER_TYPES[ELEMENT_TYPES[self.trainable]]
        self.batch = Vectors(self.ranges[self.trainable].count, kind)
        for name in names:
            self.batch.make(name)

    @property
    def vectors(self) -> Mapping[Vector, Tensor]:
        """See `Values.vectors`."""
        return {self.trainable: self._row(PARAMETERS), **self._tensors}

    @property
    def state(self) -> Mapping[str, Tensor]:
        """See `Values.state`."""
        return {name: self._row(name) for name in self.batch.places if name != PARAMETERS}

    @property
    def lasting(self) -> Mapping[str, int]:
        """See `Values.lasting`: the history."""
        found = self.batch
        return {name: found.content(name) for name in found.places if is_of_pair(name)}

    @property
    def description(self) -> Mapping[str, str]:
        """See `Values.description`."""
        return {_PLACES: " ".join(self.batch.places)}

    def has(self, vector: Vector) -> bool:
        """See `Values.has`."""
        return super().has(vector) or (vector is self._trial and TRIAL in self.batch.names)

    def part(self, vector: Vector, part: Range) -> Tensor:
        """See `Values.part`."""
        if vector is not self.trainable:
            return super().part(vector, part)
        first = self.ranges[vector].first
        return self._row(PARAMETERS)[part.first - first : part.end - first]

    def _memory(self, vector: Vector) -> memoryview:
        if vector is self.trainable:
            return bytes_of(self._row(PARAMETERS))
        if vector is self._trial:
            return bytes_of(self._row(TRIAL))
        return super()._memory(vector)

    def _row(self, name: str) -> Tensor:
        return torch.from_numpy(self.batch[name])


def make(
    ranges: Mapping[Vector, Range], chunk_bytes: int, description: Mapping[str, str]
) -> BatchValues:
    """Room for the values that a checkpoint describes; {}: for new ones."""
    names = description.get(_PLACES, "").split()
    return BatchValues(ranges, chunk_bytes, names if PARAMETERS in names else (PARAMETERS,))
