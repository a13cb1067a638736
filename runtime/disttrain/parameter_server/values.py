"""What a shard holds: its range of every vector, and the update rule's state vectors."""

from collections.abc import Mapping

import torch
from torch import Tensor

from disttrain import layout
from disttrain.checkpoint.vector_file import OnDisk
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
        """Of the model's vectors."""
        self.trainable = layout.trainable(self.ranges)
        self.chunk_bytes = chunk_bytes
        self._tensors = {
            # Pages of zeros are taken from the system only when they are touched.
            vector: torch.zeros(part.count, dtype=DTYPES[ELEMENT_TYPES[vector]])
            for vector, part in self.ranges.items()
        }
        self._state: dict[str, Tensor] = {}
        self.on_disk: dict[int, OnDisk] = {}
        """Where lasting vectors lie, by the number of their content."""
        self._bytes = {vector: bytes_of(tensor) for vector, tensor in self._tensors.items()}

    @property
    def vectors(self) -> Mapping[Vector, Tensor]:
        """The model's, as they are."""
        return self._tensors

    @property
    def state(self) -> Mapping[str, Tensor]:
        """The vectors beside what is trained, by name."""
        return self._state

    @property
    def lasting(self) -> Mapping[str, int]:
        """State vectors that stay as they are for long, each with the number of its content."""
        return {}

    @property
    def description(self) -> Mapping[str, str]:
        """What a checkpoint must say, so that these values can be made again."""
        return {}

    def has(self, vector: Vector) -> bool:
        """Whether chunks of it are here."""
        return vector in self.ranges

    def add_state(self, initial: Mapping[str, float]) -> None:
        """Make the update rule's vectors, each filled with its number."""
        parameters = self._tensors[self.trainable]
        for name, value in initial.items():
            if name not in self._state:
                vector = torch.zeros_like(parameters)
                self._state[name] = vector.fill_(value) if value else vector

    def chunks(self, vector: Vector) -> int:
        """How many chunks this shard's part of a vector has; at least 1 if it is trained."""
        count = -(-self._range(vector).count // self.chunk_elements(vector))
        return max(1, count) if layout.length_given_by(vector) is self.trainable else count

    def chunk_elements(self, vector: Vector) -> int:
        """Elements of a full chunk."""
        return self.chunk_bytes // ELEMENT_BYTES[ELEMENT_TYPES[vector]]

    def chunk(self, vector: Vector, number: int) -> Range:
        """Elements of one chunk, counted in the whole vector."""
        part = self._range(vector)
        first = min(part.first + number * self.chunk_elements(vector), part.end)
        return Range(first=first, end=min(first + self.chunk_elements(vector), part.end))

    def is_cut_so(self, header: Header) -> bool:
        """Whether a whole chunk of a vector has the elements that its number says."""
        vector = Vector(header.vector)
        part = self.chunk(vector, header.chunk)
        said = header.first, header.count, header.chunks
        return said == (part.first, part.count, self.chunks(vector))

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
        return self._tensors[vector][part.first - first : part.end - first]

    def state_parts(self, part: Range) -> dict[str, Tensor]:
        """Views of the state vectors beside some of the parameters."""
        first = self.ranges[self.trainable].first
        local = slice(part.first - first, part.end - first)
        return {name: vector[local] for name, vector in self._state.items()}

    def bytes_of(self, vector: Vector, part: Range) -> memoryview:
        """The memory of some elements, to be sent."""
        size = ELEMENT_BYTES[ELEMENT_TYPES[vector]]
        first = self._range(vector).first
        return self._memory(vector)[(part.first - first) * size : (part.end - first) * size]

    def _memory(self, vector: Vector) -> memoryview:
        return self._bytes[vector]

    def _range(self, vector: Vector) -> Range:
        return self.ranges[layout.length_given_by(vector)]


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
