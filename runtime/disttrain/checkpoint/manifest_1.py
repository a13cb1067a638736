"""Manifests of format 1, by which versions before the placement wrote checkpoints. Pure.

There a vector had a name for each element type, and each shard's entry said what it holds of it.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from disttrain.checkpoint.manifest import (
    AnyManifest,
    Count,
    FileEntry,
    HolderEntry,
    Manifest,
    Piece,
    Strict,
    VectorEntry,
)
from disttrain.state.placement import MOST_HOLDERS, Held, Placement, require_sound
from disttrain.state.vector import Vector, VectorText


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece(Piece):
    partition: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Range(Strict):
    partition: Count = 0
    vector: VectorText
    first: Count
    end: Count

    @property
    def whole(self) -> Vector:
        return self.vector._replace(partition=self.partition)


@dataclass(frozen=True, kw_only=True, slots=True)
class _VectorEntry(Strict):
    tensor: VectorText
    file: FileEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shard(Strict):
    index: Count
    file: FileEntry
    version: Count
    ranges: tuple[_Range, ...]
    vectors: tuple[_VectorEntry, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest1(AnyManifest):
    """As it was."""

    format: Literal["disttrain-checkpoint"]
    format_version: Literal[1]
    pieces: tuple[_Piece, ...]
    shards: Annotated[tuple[_Shard, ...], Field(min_length=1, max_length=MOST_HOLDERS)]
    coordinator: FileEntry | None = None


def upgraded(former: Manifest1) -> Manifest:
    """The same checkpoint, as a manifest of today says it. Raises ValueError."""
    return Manifest(
        number=former.number,
        job=former.job,
        created=former.created,
        seed=former.seed,
        samples=former.samples,
        update_rule=former.update_rule,
        tensors=former.tensors,
        pieces=tuple(_piece(piece) for piece in former.pieces),
        placement=require_sound(_placement(former.shards)),
        holders=tuple(_holder(shard) for shard in former.shards),
        coordinator=former.coordinator,
    )


def _piece(former: _Piece) -> Piece:
    vector = former.vector._replace(partition=former.partition)
    return Piece(tensor=former.tensor, slices=former.slices, vector=vector, first=former.first)


def _placement(shards: tuple[_Shard, ...]) -> Placement:
    held = [part for shard in shards for part in shard.ranges]
    vectors = tuple(dict.fromkeys(part.whole for part in held))
    numbers = {vector: number for number, vector in enumerate(vectors)}
    return Placement(
        vectors=vectors,
        holders=tuple(
            tuple(Held(numbers[part.whole], part.first, part.end) for part in shard.ranges)
            for shard in shards
        ),
    )


def _holder(former: _Shard) -> HolderEntry:
    return HolderEntry(
        index=former.index,
        file=former.file,
        version=former.version,
        vectors=tuple(VectorEntry(vector=own.tensor, file=own.file) for own in former.vectors),
    )
