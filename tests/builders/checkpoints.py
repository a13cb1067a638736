"""Models, values and checkpoints on disk, in which a test says only what matters to it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from builders import placements
from disttrain.checkpoint import model_map, names, stores
from disttrain.checkpoint.element_types import DTYPES, FILE_TYPES, Values
from disttrain.checkpoint.manifest import (
    FileEntry,
    HolderEntry,
    JobIdentity,
    Manifest,
    ModelTensor,
    Piece,
)
from disttrain.checkpoint.part_file import Content, Written
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.storage import FolderStorage
from disttrain.checkpoint.stores import Parts, Staging
from disttrain.checkpoint.tensor_file import Tensor
from disttrain.holder import writing
from disttrain.holder.writing import Cut
from disttrain.state.layout import ModelLayout, TensorSpec
from disttrain.state.placement import Held, Placement, Range, place
from disttrain.state.vector import Vector

Shapes = Mapping[str, tuple[int, ...]]

SMALL: Shapes = {"first.weight": (5, 7), "first.bias": (5,), "second.weight": (9, 5)}
"""A model of 85 parameters."""


def a_layout(shapes: Shapes = SMALL) -> ModelLayout:
    """A model of float32 parameters with these names and shapes."""
    specs: list[TensorSpec] = []
    for name, shape in shapes.items():
        first = specs[-1].first + specs[-1].elements if specs else 0
        specs.append(a_tensor(name, shape, first=first))
    return ModelLayout(tensors=tuple(specs))


def a_tensor(
    name: str,
    shape: tuple[int, ...] = (3,),
    *,
    dtype: str = "float32",
    vector: Vector = placements.PARAMETERS,
    first: int = 0,
    aliases: tuple[str, ...] = (),
) -> TensorSpec:
    return TensorSpec(
        name=name, aliases=aliases, shape=shape, dtype=dtype, vector=vector, first=first
    )


def counting(layout: ModelLayout) -> dict[Vector, Values]:
    """Values 0, 1, 2, ... for every vector of a model."""
    return {
        vector: np.arange(count, dtype=DTYPES[vector.element_type])
        for vector, count in layout.lengths().items()
    }


class _OneFolder(FolderStorage):
    """Everything is staged where it is."""

    def staged(self, number: int, entry: FileEntry) -> str:  # noqa: ARG002  There is one.
        return entry.name

    def room(self, number: int | None) -> AbstractContextManager[Path]:  # noqa: ARG002  As above.
        return nullcontext(self.home)


def parts_at(folder: Path) -> Parts:
    """Parts of a checkpoint in a folder that no store has made."""
    return Parts(_OneFolder(folder), 1)


def folder_of(staging: Staging) -> Path:
    """Where shards write their parts."""
    return Path(staging.storage.staging(staging.number))


def put_part(
    parts: Parts,
    index: int,
    ranges: Mapping[Vector, Range],
    values: Mapping[Vector, Values],
    version: int = 7,
) -> HolderEntry:
    """One holder's file with the values of its ranges, and Adagrad's state: ten times as much."""
    contents = [
        Content(tensor=tensor, pieces=pieces)
        for vector, held in ranges.items()
        if vector in values and held.count
        for tensor, pieces in _tensors(vector, values[vector][held.first : held.end])
    ]
    written = parts.write_part(index, contents, {"version": str(version)})
    return HolderEntry(index=index, file=_entry(index, written), version=version)


def _entry(index: int, written: Written) -> FileEntry:
    return FileEntry(name=names.part_file(index), bytes=written.bytes, hash=written.hash)


def _tensors(vector: Vector, values: Values) -> Iterator[tuple[Tensor, list[memoryview]]]:
    yield _tensor(vector, values)
    if vector == placements.PARAMETERS:
        yield _tensor(vector.beside("sum_of_squares"), values * 10)


def _tensor(vector: Vector, values: Values) -> tuple[Tensor, list[memoryview]]:
    kind = FILE_TYPES[vector.element_type]
    halves = [values[: values.size // 2].data, values[values.size // 2 :].data]
    return Tensor(name=str(vector), type=kind, shape=(values.size,)), halves


def a_manifest(
    holders: Sequence[HolderEntry],
    *,
    layout: ModelLayout | None = None,
    placement: Placement | None = None,
    number: int = 1,
    coordinator: FileEntry | None = None,
    rule: str = "adagrad",
) -> Manifest:
    """A manifest of an undivided model."""
    layout = layout or a_layout()
    return Manifest(
        number=number,
        job=JobIdentity(uid="0123abcd", name="digits"),
        created=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        seed=11,
        samples=4096,
        update_rule=rule,
        tensors=model_map.tensors(layout),
        pieces=model_map.pieces(layout),
        placement=placement or a_placement(layout, len(holders)),
        holders=tuple(holders),
        coordinator=coordinator,
    )


def put_parts(
    parts: Parts,
    layout: ModelLayout,
    holders: int,
    values: Mapping[Vector, Values],
    version: int = 7,
) -> list[HolderEntry]:
    """The files of all holders of a model."""
    placement = a_placement(layout, holders)
    return [
        put_part(parts, index, placement.ranges(index), values, version) for index in range(holders)
    ]


def stage(staging: Staging, layout: ModelLayout, shards: int) -> Manifest:
    """Write all files but the manifest of a checkpoint with `counting` values."""
    parts = Parts(staging.storage, staging.number)
    entries = put_parts(parts, layout, shards, counting(layout))
    own = staging.write_coordinator(b'{"ledger": []}')
    return a_manifest(entries, layout=layout, number=staging.number, coordinator=own)


def a_checkpoint(
    folder: Path, *, layout: ModelLayout | None = None, shards: int = 2, number: int = 1
) -> Checkpoint:
    """A complete checkpoint in the store `folder`."""
    store = stores.in_folder(folder)
    return store.commit(stage(store.begin(number), layout or a_layout(), shards))


def a_divided_checkpoint(
    folder: Path,
    tensors: Sequence[ModelTensor],
    pieces: Sequence[Piece],
    values: Mapping[Vector, Values],
) -> Checkpoint:
    """A checkpoint of a model over partitions: one holder for each vector."""
    store = stores.in_folder(folder)
    parts = Parts(store.begin(1).storage, 1)
    entries = [
        put_part(parts, index, {vector: Range(first=0, end=held.size)}, {vector: held})
        for index, (vector, held) in enumerate(values.items())
    ]
    holders = tuple((Held(index, 0, held.size),) for index, held in enumerate(values.values()))
    placement = Placement(vectors=tuple(values), holders=holders)
    whole = a_manifest(entries)
    return store.commit(
        replace(whole, tensors=tuple(tensors), pieces=tuple(pieces), placement=placement)
    )


def commit_cuts(
    folder: Path, cuts: Sequence[Cut], rule: str = "sgd", number: int = 1
) -> Checkpoint:
    """Of a model with one tensor; written as shards do, and committed as the coordinator does."""
    store = stores.in_folder(folder)
    staging = store.begin(number)
    entries = []
    for index, made in enumerate(cuts):
        written = writing.write(made, Parts(staging.storage, number))
        made.immutable.remember()
        entries.append(
            HolderEntry(
                index=index,
                file=_entry(index, written),
                version=made.notes.version,
                vectors=made.immutable.entries,
            )
        )
    values = cuts[0].immutable.values
    placement, vector = values.share.placement, values.trained
    weight = a_tensor("weight", (placement.elements(vector),), vector=vector)
    layout = ModelLayout(tensors=(weight,))
    whole = a_manifest(entries, layout=layout, placement=placement, number=number, rule=rule)
    return store.commit(replace(whole, job=JobIdentity(uid="job", name="job")))


def a_placement(layout: ModelLayout, holders: int) -> Placement:
    """Of a job with Adagrad."""
    return place(layout, holders, ("sum_of_squares",))


def flip_bit(file: Path, at: int) -> None:
    """Change one bit of a file; `at` may count from the end."""
    content = bytearray(file.read_bytes())
    content[at] ^= 0x10
    file.write_bytes(content)
