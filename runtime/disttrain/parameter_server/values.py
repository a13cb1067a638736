"""What a shard holds: its range of every vector, and the update rule's state vectors."""

from collections.abc import Mapping

import torch
from torch import Tensor

from disttrain import layout
from disttrain.layout import ELEMENT_TYPES, Range
from disttrain.transport.header import ELEMENT_BYTES, ElementType, Header, Vector

DTYPES = {
    ElementType.FLOAT32: torch.float32,
    ElementType.FLOAT64: torch.float64,
    ElementType.INT64: torch.int64,
}


class Values:
    """Tensors of one shard. Memory: the elements, plus the state vectors."""

    def __init__(self, ranges: Mapping[Vector, Range], chunk_bytes: int) -> None:
        self.ranges = dict(ranges)
        self.trainable = layout.trainable(self.ranges)
        self.chunk_bytes = chunk_bytes
        self.vectors = {
            vector: torch.zeros(part.count, dtype=DTYPES[ELEMENT_TYPES[vector]])
            for vector, part in self.ranges.items()
        }
        self.state: dict[str, Tensor] = {}
        self._bytes = {vector: bytes_of(tensor) for vector, tensor in self.vectors.items()}

    def add_state(self, initial: Mapping[str, float]) -> None:
        """Make the update rule's vectors, each filled with its number."""
        parameters = self.vectors[self.trainable]
        for name, value in initial.items():
            if name not in self.state:
                # Pages of zeros are taken from the system only when they are touched.
                vector = torch.zeros_like(parameters)
                self.state[name] = vector.fill_(value) if value else vector

    def chunks(self, vector: Vector) -> int:
        """How many chunks this shard's part of a vector has; at least 1 if it is trained."""
        count = -(-self.ranges[vector].count // self.chunk_elements(vector))
        return max(1, count) if vector is self.trainable else count

    def chunk_elements(self, vector: Vector) -> int:
        """Elements of a full chunk."""
        return self.chunk_bytes // ELEMENT_BYTES[ELEMENT_TYPES[vector]]

    def chunk(self, vector: Vector, number: int) -> Range:
        """Elements of one chunk, counted in the whole vector."""
        part = self.ranges[vector]
        first = min(part.first + number * self.chunk_elements(vector), part.end)
        return Range(first=first, end=min(first + self.chunk_elements(vector), part.end))

    def holds(self, header: Header) -> bool:
        """Whether a chunk's vector, element type and elements are this shard's."""
        vector = Vector(header.vector)
        part = self.ranges.get(vector)
        return (
            part is not None
            and header.element_type == ELEMENT_TYPES[vector]
            and part.first <= header.first
            and header.first + header.count <= part.end
        )

    def part(self, vector: Vector, part: Range) -> Tensor:
        """A view of some of this shard's elements."""
        first = self.ranges[vector].first
        return self.vectors[vector][part.first - first : part.end - first]

    def state_parts(self, part: Range) -> dict[str, Tensor]:
        """Views of the state vectors beside some of the parameters."""
        first = self.ranges[Vector.PARAMETERS].first
        local = slice(part.first - first, part.end - first)
        return {name: vector[local] for name, vector in self.state.items()}

    def bytes_of(self, vector: Vector, part: Range) -> memoryview:
        """The memory of some elements, to be sent."""
        size = ELEMENT_BYTES[ELEMENT_TYPES[vector]]
        first = self.ranges[vector].first
        return self._bytes[vector][(part.first - first) * size : (part.end - first) * size]


def bytes_of(tensor: Tensor) -> memoryview:
    """The tensor's own memory."""
    if not tensor.numel():
        return memoryview(b"")
    array: memoryview = tensor.numpy().data
    return array.cast("B")


def ranges_of(elements: Mapping[Vector, int], shard: int, shards: int) -> dict[Vector, Range]:
    """This shard's part of every vector that the model has. What is trained is always there."""
    wanted = {layout.trainable(elements): 0} | dict(elements)
    return {
        vector: layout.divide(count, ELEMENT_TYPES[vector], shards)[shard]
        for vector, count in wanted.items()
    }
