"""What a shard holds in a batch method: vectors that change places, the parameters among them.

Accepting a point exchanges the parameters with the trial point, and no element moves: so nobody
may keep a tensor or the memory of a vector, but asks for it at each use.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from disttrain.checkpoint.element_types import DTYPES
from disttrain.holder.values import Values, bytes_of
from disttrain.sandblaster.operations import PARAMETERS, is_of_pair
from disttrain.sandblaster.vectors import Vectors
from disttrain.state.share import Share
from disttrain.state.vector import Vector

_PLACES = "places"


class BatchValues(Values):
    """Frozen parameters and buffers lie in tensors of their own, as in every shard."""

    def __init__(self, share: Share, names: Sequence[str] = (PARAMETERS,)) -> None:
        """`names` of vectors, in the order of their places: sums of neighbours have other bits."""
        super().__init__(share)
        del self._tensors[self.trained], self._bytes[self.trained]
        kind = DTYPES[self.trained.element_type]
        self.batch = Vectors(share.ranges[self.trained].count, kind)
        for name in names:
            self.batch.make(name)

    @property
    def vectors(self) -> Mapping[Vector, Tensor]:
        beside = {
            self.trained.beside(name): self._row(name)
            for name in self.batch.places
            if name != PARAMETERS
        }
        return {self.trained: self._row(PARAMETERS), **self._tensors, **beside}

    @property
    def lasting(self) -> Mapping[Vector, int]:
        """See `Values.lasting`: the history."""
        found = self.batch
        history = filter(is_of_pair, found.places)
        return {self.trained.beside(name): found.content(name) for name in history}

    @property
    def description(self) -> Mapping[str, str]:
        return {_PLACES: " ".join(self.batch.places)}

    def has(self, vector: Vector) -> bool:
        is_row = vector == self.trained.beside(vector.name) and vector.name in self.batch.names
        return is_row or super().has(vector)

    def tensor(self, vector: Vector) -> Tensor:
        return self._tensors[vector] if vector in self._tensors else self._row(vector.name)

    def all_bytes(self, vector: Vector) -> memoryview:
        return self._bytes[vector] if vector in self._bytes else bytes_of(self._row(vector.name))

    def _row(self, name: str) -> Tensor:
        return torch.from_numpy(self.batch[name])


def make(share: Share, description: Mapping[str, str]) -> BatchValues:
    """Room for the values that a checkpoint describes; {}: for new ones."""
    names = description.get(_PLACES, "").split()
    return BatchValues(share, names if PARAMETERS in names else (PARAMETERS,))
