"""The manifest of a checkpoint: what is in which file, and where each parameter lies. Pure.

A manifest is read from disk and believed only as far as it is checked: `parse` refuses unknown
fields, wrong types, names that are no plain file names, and pieces that do not make up the model.
"""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from disttrain.checkpoint import digest
from disttrain.transport.header import Vector

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
LONGEST_NAME = 4096
"""Characters."""
Text = Annotated[str, Field(max_length=LONGEST_NAME)]
Hash = Annotated[str, Field(pattern=digest.PATTERN)]


def _vector(name: object) -> Vector:
    if not isinstance(name, str) or name not in Vector.__members__:
        message = f"must be one of {', '.join(Vector.__members__)}"
        raise ValueError(message)
    return Vector[name]


VectorName = Annotated[
    Vector, BeforeValidator(_vector), PlainSerializer(lambda vector: vector.name, return_type=str)
]
"""A vector, by its name in the file."""


class Strict:
    """Base of everything in a manifest: unknown fields are refused."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobIdentity(Strict):
    """The job that a checkpoint is of."""

    uid: Text
    name: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelTensor(Strict):
    """A tensor of the model, however it is divided."""

    name: Text
    aliases: tuple[Text, ...] = ()
    """Further names of the same tensor (tied parameters)."""
    shape: Annotated[tuple[Count, ...], Field(max_length=64)]
    dtype: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{2,15}$")]
    """The model's own element type ("float32", "bool"); vectors may hold a wider one."""

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice(Strict):
    """Indices [first, end) of one dimension."""

    first: Count
    end: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece(Strict):
    """A box of one tensor, and its place in the flat vector of one partition.

    The box's elements lie there in row-major order. A model that is not divided has one partition,
    and one piece per tensor that is all of it.
    """

    tensor: Text
    slices: Annotated[tuple[Slice, ...], Field(max_length=64)]
    """One per dimension; none for a scalar."""
    partition: Count = 0
    vector: VectorName
    first: Count
    """First element within the vector."""

    @property
    def elements(self) -> int:
        """Elements in the box; 1 for a scalar."""
        return math.prod(part.end - part.first for part in self.slices)


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorRange(Strict):
    """Elements [first, end) of one vector of one partition, held by one shard."""

    partition: Count = 0
    vector: VectorName
    first: Count
    end: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry(Strict):
    """A file of the checkpoint, as it must be."""

    name: Text
    bytes: Count
    hash: Hash


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorEntry(Strict):
    """A state vector of a shard in a file of its own, which other checkpoints may share."""

    tensor: Text
    """What it would be called in the shard's file."""
    file: FileEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardEntry(Strict):
    """One shard's part."""

    index: Count
    file: FileEntry
    version: Count
    """Updates that it had applied."""
    ranges: tuple[VectorRange, ...]
    vectors: tuple[VectorEntry, ...] = ()
    """State that is not in the shard's file."""

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """All that belongs to this shard."""
        return (self.file, *(vector.file for vector in self.vectors))


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest(Strict):
    """Everything about a checkpoint but the values."""

    format: Literal["disttrain-checkpoint"] = "disttrain-checkpoint"
    format_version: Literal[1] = 1
    number: Count
    job: JobIdentity
    created: datetime
    seed: Count
    samples: Count
    """Training samples in it, as the coordinator counts them; what the shards hold may be ahead."""
    update_rule: Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,31}$")]
    """The optimizer: "sgd", "momentum", "adagrad"."""
    tensors: tuple[ModelTensor, ...]
    pieces: tuple[Piece, ...]
    shards: Annotated[tuple[ShardEntry, ...], Field(min_length=1, max_length=99_999)]
    coordinator: FileEntry | None = None

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """All files beside the manifest, each once."""
        own = () if self.coordinator is None else (self.coordinator,)
        found = [entry for shard in self.shards for entry in shard.files]
        return tuple(dict.fromkeys([*found, *own]))

    @property
    def version(self) -> int:
        """The lowest version of its shards."""
        return min(shard.version for shard in self.shards)
