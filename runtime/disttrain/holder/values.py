"""What a holder has: its range of every vector, what it notes beside them, and received values."""

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from disttrain.checkpoint.manifest import FileEntry
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.share import Part, Share
from disttrain.state.vector import BUFFERS, Vector
from disttrain.transport.header import ElementType, Header


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of whole numbers of 64 bits."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Notes:
    """Of one moment, or of one part of a checkpoint."""

    version: int
    """Updates in the values."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    """By name; each is a tensor of the part's file."""


DTYPES = {
    ElementType.FLOAT32: torch.float32,
    ElementType.FLOAT64: torch.float64,
    ElementType.INT64: torch.int64,
    ElementType.BFLOAT16: torch.bfloat16,
    ElementType.INT8: torch.uint8,
}
"""Of the memory: that of INT8 is blocks with their scales."""

Sender: TypeAlias = tuple[int, int]
"""Index and incarnation of somebody who changes values."""


class Values:
    """Tensors of one holder."""

    def __init__(
        self,
        share: Share,
        kept: Mapping[str, float] | None = None,
        optional: Collection[str] = (),
    ) -> None:
        """`kept`: vectors beside what is trained, by name, each filled with its number.

        `optional`: names of those that a checkpoint of before need not have.
        """
        self.share = share
        self.optional = frozenset(optional)
        self.lacking: set[Vector] = set()
        """Those that the checkpoint did not have; they are as they were made."""
        self.trained = share.trained
        beside = {self.trained.beside(name): value for name, value in (kept or {}).items()}
        of_a_model = [vector for vector in share.ranges if vector.is_of_a_model]
        self._tensors = {
            # Pages of zeros are taken from the system only when they are touched.
            vector: torch.zeros(share.range_of(vector).count, dtype=DTYPES[vector.element_type])
            for vector in (*of_a_model, *beside)
        }
        for vector, value in beside.items():
            if value:
                self._tensors[vector].fill_(value)
        self._bytes = {vector: bytes_of(tensor) for vector, tensor in self._tensors.items()}
        self._of_senders: dict[Sender, dict[str, Tensor]] = {}
        self.on_disk: dict[int, FileEntry] = {}
        """The files of immutable vectors, by the number of their content."""

    @property
    def vectors(self) -> Mapping[Vector, Tensor]:
        return self._tensors

    @property
    def immutable(self) -> Mapping[Vector, int]:
        """Vectors that stay as they are for long, each with the number of its content."""
        return {}

    @property
    def description(self) -> Mapping[str, str]:
        """What a checkpoint must say, so that these values can be made again."""
        return {}

    def has(self, vector: Vector) -> bool:
        return vector in self._tensors

    def vector_of(self, header: Header) -> Vector | None:
        vector = self.share.placement.vector(header.vector)
        return vector if vector is not None and self.has(vector) else None

    def is_whole_chunk(self, vector: Vector, header: Header) -> bool:
        part = self.share.chunk(vector, header.chunk)
        said = header.element_type, header.first, header.count, header.chunks
        return said == (vector.element_type, part.first, part.count, self.share.num_chunks(vector))

    def holds(self, vector: Vector, header: Header) -> bool:
        held = self.share.range_of(vector)
        return (
            vector.travels_as(header.element_type)
            and held.first <= header.first
            and header.first + header.count <= held.end
        )

    def pushed(
        self, header: Header, beside: Sequence[str], fragment: Fragment = WHOLE
    ) -> Part | None:
        """What a chunk of a push of this fragment is of; None: it does not fit.

        The parameters' chunks come first, cut as everywhere, each after those of the vectors that
        are pushed `beside` it; then parts of the buffers.
        """
        trained, group = self.trained, 1 + len(beside)
        parameter_chunks = len(self.share.fragment_chunks(trained, fragment))
        number, place = divmod(header.chunk, group)
        if number >= parameter_chunks:
            found = self.vector_of(header)
            fits = found is not None and found.name == BUFFERS and self.holds(found, header)
            return Part(found, header.chunk, header.first, header.count) if found and fits else None
        vector = [*map(trained.beside, beside), trained][place]
        part = self.share.fragment_chunks(vector, fragment)[number]
        said = header.vector, header.first, header.count
        known = self.share.placement.number(vector), part.first, part.count
        is_own_type = header.element_type == vector.element_type
        fits = vector.travels_as(header.element_type) if vector.is_trained else is_own_type
        return (
            part if fits and said == known and header.chunks >= group * parameter_chunks else None
        )

    def part(self, part: Part) -> Tensor:
        return self.tensor(part.vector)[self._local(part)]

    def beside(self, part: Part) -> dict[str, Tensor]:
        """Views of the kept vectors, by name, beside some of the trained elements."""
        local = self._local(part)
        return {
            vector.name: tensor[local]
            for vector, tensor in self.vectors.items()
            if not vector.is_of_a_model
        }

    def of_sender(self, sender: Sender, names: Sequence[str], part: Part) -> dict[str, Tensor]:
        """Views of the vectors of one sender, beside some of the trained elements.

        They are made when they are first asked for, filled with 0, and in no snapshot.
        """
        if sender not in self._of_senders:
            self._of_senders[sender] = {
                name: torch.zeros_like(self.tensor(self.trained)) for name in names
            }
        local = self._local(part)
        return {name: tensor[local] for name, tensor in self._of_senders[sender].items()}

    def drop_sender(self, sender: Sender) -> None:
        """Nothing of this incarnation of it, or of an earlier one, will come any more."""
        index, incarnation = sender
        for gone in [gone for gone in self._of_senders if gone[0] == index]:
            if gone[1] <= incarnation:
                del self._of_senders[gone]

    def bytes_of(self, part: Part) -> memoryview:
        """The memory of some elements, to be sent."""
        size, local = part.vector.element_bytes, self._local(part)
        return self.all_bytes(part.vector)[local.start * size : local.stop * size]

    def all_bytes(self, vector: Vector) -> memoryview:
        return self._bytes[vector]

    def tensor(self, vector: Vector) -> Tensor:
        return self._tensors[vector]

    def _local(self, part: Part) -> slice:
        first = part.first - self.share.range_of(part.vector).first
        return slice(first, first + part.count)


def bytes_of(tensor: Tensor) -> memoryview:
    if not tensor.numel():
        return memoryview(b"")
    # NumPy does not know bfloat16.
    known = tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor
    array: memoryview = known.numpy().data
    return array.cast("B")


with warnings.catch_warnings():
    # torch warns once per process that it does not keep read-only memory from being written.
    # Nothing here writes to a received payload.
    warnings.simplefilter("ignore")
    torch.frombuffer(b"\0", dtype=torch.uint8)


def tensor_of(payload: memoryview, element_type: ElementType) -> Tensor:
    """The payload's values, not copied; only of a writable payload they may be written to."""
    if not payload.nbytes:
        return torch.zeros(0, dtype=DTYPES[element_type])
    return torch.frombuffer(payload, dtype=DTYPES[element_type])


def is_finite(values: Tensor) -> bool:
    """False if a value is NaN or infinite, or float32 and so large that its square is.

    The one pass of a dot product costs a sixth of an update; a norm of 1e18 counts as not finite.
    """
    if values.dtype is torch.float32:
        return math.isfinite(torch.dot(values, values).item())
    return not values.is_floating_point() or bool(torch.isfinite(values).all())


def merge(present: Tensor, sent: Tensor, live_replicas: int) -> None:
    """Move a shard's copy of the model's buffers towards what a replica sent. In place.

    Floating point: by 1 / live replicas, so that each of them counts alike; one alone is copied
    exactly. Whole numbers are counters: the maximum.
    """
    if not present.is_floating_point():
        torch.maximum(present, sent, out=present)
    elif live_replicas <= 1:
        present.copy_(sent)
    else:
        present.lerp_(sent, 1.0 / live_replicas)
