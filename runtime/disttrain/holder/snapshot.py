"""A picture of a holder's values at one moment, while updates go on.

Nothing is copied when the picture is taken. From then on a chunk is copied before its first change;
whoever reads the picture copies the others when it comes to them. So memory doubles at most, and
the holder stops for one chunk's copy at a time.
"""

import threading
from collections.abc import Iterator, Sequence
from enum import IntEnum

from torch import Tensor

from disttrain.holder.values import Values, bytes_of
from disttrain.state.share import Part
from disttrain.state.vector import Vector


class _Chunk(IntEnum):
    """How far a chunk of the picture is."""

    LIVE = 0
    """Not changed since: it can be read where it is."""
    COPIED = 1
    READ = 2


class _Picture:
    """One tensor, cut into chunks."""

    def __init__(self, live: Tensor, chunk_elements: int) -> None:
        self.live = live
        self.chunk_elements = chunk_elements
        self.state = bytearray(-(-live.numel() // chunk_elements))
        self.copies: dict[int, Tensor] = {}

    def chunk(self, number: int) -> Tensor:
        first = number * self.chunk_elements
        return self.live[first : first + self.chunk_elements]


class Snapshot:
    """`before_change` belongs to the holder's thread, `pieces` to one other thread."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._lock = threading.Lock()
        self._pictures = {
            vector: _Picture(tensor, values.share.chunk_elements(vector))
            for vector, tensor in values.vectors.items()
        }
        self._beside = [
            picture for vector, picture in self._pictures.items() if not vector.is_of_a_model
        ]

    def before_change(self, part: Part) -> None:
        """Copy what is about to change, if it was not copied before."""
        pictures = [self._pictures[part.vector]]
        if part.vector.is_trained:
            pictures.extend(self._beside)
        first = part.first - self._values.share.range_of(part.vector).first
        size = pictures[0].chunk_elements
        for number in range(first // size, -(-(first + part.count) // size)):
            for picture in pictures:
                self._keep(picture, number)

    def before_change_of(self, tensors: Sequence[Tensor]) -> None:
        """Copy whole vectors that are about to change, if they are in the picture."""
        changing = {tensor.data_ptr() for tensor in tensors}
        for picture in self._pictures.values():
            if picture.live.data_ptr() in changing:
                for number in range(len(picture.state)):
                    self._keep(picture, number)

    def values_of(self, vector: Vector) -> Iterator[memoryview]:
        """The bytes of a vector as they were, chunk by chunk. Once."""
        picture = self._pictures[vector]
        for number in range(len(picture.state)):
            with self._lock:
                copy = picture.copies.pop(number, None)
                if copy is None:
                    copy = picture.chunk(number).clone()
                picture.state[number] = _Chunk.READ
            yield bytes_of(copy)

    def leave_out(self, vector: Vector) -> None:
        """Nobody will read this one: it is not copied any more."""
        picture = self._pictures[vector]
        with self._lock:
            picture.state = bytearray([_Chunk.READ]) * len(picture.state)
            picture.copies.clear()

    def _keep(self, picture: _Picture, number: int) -> None:
        if picture.state[number] != _Chunk.LIVE:
            return
        with self._lock:
            if picture.state[number] == _Chunk.LIVE:
                picture.copies[number] = picture.chunk(number).clone()
                picture.state[number] = _Chunk.COPIED
