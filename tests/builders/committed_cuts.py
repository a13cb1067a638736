"""A checkpoint made of shards' cuts, of a model that has one tensor."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from disttrain.checkpoint import model_map, names, stores
from disttrain.checkpoint.manifest import FileEntry, HolderEntry, JobIdentity, Manifest
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.stores import Parts
from disttrain.holder import writing
from disttrain.holder.writing import Cut
from disttrain.state.layout import ModelLayout, TensorSpec
from disttrain.state.vector import Vector


def a_model(vector: Vector, elements: int) -> ModelLayout:
    """One tensor, which is the whole vector."""
    tensor = TensorSpec(
        name="weight", aliases=(), shape=(elements,), dtype="float32", vector=vector, first=0
    )
    return ModelLayout(tensors=(tensor,))


def commit(
    folder: Path, cuts: Sequence[Cut], model: ModelLayout, rule: str, number: int
) -> Checkpoint:
    """Written as shards write their parts, and committed as the coordinator does."""
    store = stores.in_folder(folder)
    staging = store.begin(number)
    entries = []
    for index, made in enumerate(cuts):
        parts = Parts(staging.storage, number)
        written = writing.write(made, parts)
        name = names.part_file(index)
        file = FileEntry(name=name, bytes=written.bytes, hash=written.hash)
        made.lasting.remember()
        entry = HolderEntry(
            index=index,
            file=file,
            version=made.notes.version,
            vectors=made.lasting.entries,
        )
        entries.append(entry)
    placement = cuts[0].lasting.values.share.placement
    manifest = Manifest(
        number=number,
        job=JobIdentity(uid="job", name="job"),
        created=datetime.now(UTC),
        seed=0,
        samples=0,
        update_rule=rule,
        tensors=model_map.tensors(model),
        pieces=model_map.pieces(model),
        placement=placement,
        holders=tuple(entries),
    )
    return store.commit(manifest)
