"""The manifest of a checkpoint: what is in which file, and where each parameter lies. Pure.

A manifest is read from disk and believed only as far as it is checked: `parse` refuses unknown
fields, wrong types, names that are no plain file names, and pieces that do not make up the model.
"""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from disttrain.checkpoint import digest
from disttrain.job.update_rule import present_name
from disttrain.state.placement import MOST_HOLDERS, SoundPlacement
from disttrain.state.vector import VectorText

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
LONGEST_NAME = 4096
"""Characters."""
Text = Annotated[str, Field(max_length=LONGEST_NAME)]
Hash = Annotated[str, Field(pattern=digest.PATTERN)]


class Strict:
    """Base of what stands beside values in storage: unknown fields are refused."""

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
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice(Strict):
    """Indices [first, end) of one dimension."""

    first: Count
    end: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece(Strict):
    """A box of one tensor, and its place in a flat vector.

    The box's elements lie there in row-major order. A tensor of a model that is not divided has one
    piece, which is all of it.
    """

    tensor: Text
    slices: Annotated[tuple[Slice, ...], Field(max_length=64)]
    """One per dimension; none for a scalar."""
    vector: VectorText
    first: Count
    """First element within the vector."""

    @property
    def elements(self) -> int:
        return math.prod(part.end - part.first for part in self.slices)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry(Strict):
    """A file of the checkpoint, as it must be."""

    name: Text
    bytes: Count
    hash: Hash


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorEntry(Strict):
    """One holder's range of a vector in a file of its own, which other checkpoints may share."""

    vector: VectorText
    file: FileEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class HolderEntry(Strict):
    """What one holder of the placement wrote."""

    index: Count
    file: FileEntry
    version: Count
    """Updates that it had applied."""
    vectors: tuple[VectorEntry, ...] = ()
    """Those that are not in `file`."""

    @property
    def files(self) -> tuple[FileEntry, ...]:
        return (self.file, *(vector.file for vector in self.vectors))


@dataclass(frozen=True, kw_only=True, slots=True)
class AnyManifest(Strict):
    """What manifests of every format say."""

    format: Literal["disttrain-checkpoint"] = "disttrain-checkpoint"
    format_version: int
    number: Count
    job: JobIdentity
    created: datetime
    seed: Count
    samples: Count
    """Training samples in it, as the coordinator counts them; what holders have may be ahead."""
    update_rule: Annotated[
        str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$"), AfterValidator(present_name)
    ]
    """The optimizer: "sgd", "momentum", "adagrad"."""
    tensors: tuple[ModelTensor, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest(AnyManifest):
    """Everything about a checkpoint but the values."""

    format_version: Literal[2] = 2
    pieces: tuple[Piece, ...]
    placement: SoundPlacement
    holders: Annotated[tuple[HolderEntry, ...], Field(min_length=1, max_length=MOST_HOLDERS)]
    coordinator: FileEntry | None = None

    @property
    def files(self) -> tuple[FileEntry, ...]:
        own = () if self.coordinator is None else (self.coordinator,)
        found = [entry for holder in self.holders for entry in holder.files]
        return tuple(dict.fromkeys([*found, *own]))

    @property
    def version(self) -> int:
        return min(holder.version for holder in self.holders)
