"""What there is to say about a checkpoint, for people and programs."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from pydantic import TypeAdapter

from disttrain.checkpoint import names
from disttrain.checkpoint.manifest import HolderEntry, Manifest
from disttrain.checkpoint.part_file import PartFile
from disttrain.checkpoint.reading import Checkpoint, Restore
from disttrain.state.vector import Vector


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTensor:
    """A flat vector, an optimizer's state or a table in a shard's file."""

    name: str
    elements: int
    bytes: int
    file: str | None = None
    """Its own, which other checkpoints may share; None: it is in the shard's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardPart:
    """One shard's file, and what is in files of its own."""

    index: int
    file: str
    bytes: int
    hash: str
    version: int
    values: tuple[StoredTensor, ...]
    optimizer_state: tuple[StoredTensor, ...]
    tables: tuple[StoredTensor, ...]
    """What else the shard remembers, such as which pushes it has applied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPart:
    """One tensor of the model."""

    name: str
    aliases: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    elements: int
    vector: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """A checkpoint whose hashes all match."""

    path: str
    """Its folder, or its manifest in an object store."""
    number: int
    job: str
    job_uid: str
    created: datetime
    seed: int
    samples: int
    update_rule: str
    bytes: int
    """Of all files but the manifest."""
    hashes_verified: int
    """Files whose hash was checked."""
    shards: tuple[ShardPart, ...]
    tensors: tuple[ModelPart, ...]


_INSPECTION = TypeAdapter(Inspection)


def inspect(checkpoint: Checkpoint, said: str) -> Inspection:
    """What a verified checkpoint holds; `said`: where people find it.

    Raises Corrupt when files and manifest disagree.
    """
    manifest = checkpoint.manifest
    with Restore(checkpoint) as restore:
        restore.check_files()
        shards = tuple(_shard(manifest, restore, index) for index in range(len(manifest.holders)))
    return Inspection(
        path=said,
        number=manifest.number,
        job=manifest.job.name,
        job_uid=manifest.job.uid,
        created=manifest.created,
        seed=manifest.seed,
        samples=manifest.samples,
        update_rule=manifest.update_rule,
        bytes=sum(entry.bytes for entry in manifest.files),
        hashes_verified=len(manifest.files),
        shards=shards,
        tensors=_model(manifest),
    )


def to_json(inspection: Inspection) -> str:
    return _INSPECTION.dump_json(inspection, indent=1).decode()


def _shard(manifest: Manifest, restore: Restore, index: int) -> ShardPart:
    entry, stored = manifest.holders[index], list(_stored(restore.file(index)))
    return ShardPart(
        index=index,
        file=entry.file.name,
        bytes=entry.file.bytes,
        hash=entry.file.hash,
        version=entry.version,
        values=tuple(one for vector, one in stored if vector and vector.is_of_a_model),
        optimizer_state=(
            *(one for vector, one in stored if vector and not vector.is_of_a_model),
            *_vectors(restore, entry),
        ),
        tables=tuple(one for vector, one in stored if vector is None),
    )


def _stored(file: PartFile) -> Iterator[tuple[Vector | None, StoredTensor]]:
    """With the vectors whose values they are."""
    for tensor in file.tensors.values():
        one = StoredTensor(name=tensor.name, elements=tensor.elements, bytes=tensor.nbytes)
        yield names.vector_of(tensor.name), one


def _vectors(restore: Restore, entry: HolderEntry) -> Iterator[StoredTensor]:
    for vector in entry.vectors:
        found = restore.vector(vector)
        yield StoredTensor(
            name=str(vector.vector),
            elements=found.elements,
            bytes=found.nbytes,
            file=vector.file.name,
        )


def _model(manifest: Manifest) -> tuple[ModelPart, ...]:
    vectors: dict[str, list[str]] = {}
    for piece in manifest.pieces:
        vectors.setdefault(piece.tensor, []).append(str(piece.vector))
    return tuple(
        ModelPart(
            name=tensor.name,
            aliases=tensor.aliases,
            shape=tensor.shape,
            dtype=tensor.dtype,
            elements=tensor.elements,
            vector=", ".join(vectors[tensor.name]),
        )
        for tensor in manifest.tensors
    )
