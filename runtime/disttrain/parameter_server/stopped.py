"""The exact values of a shard that was told to end, kept for its next life.

Nothing is lost then, however long ago the last checkpoint is. Two files in a folder beside the
checkpoints: the shard's, as in a checkpoint, and after it a small one that says what it is.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from disttrain.checkpoint import durable, names, shard_file
from disttrain.checkpoint.durable import DurableFile
from disttrain.checkpoint.errors import Corrupt, NotWritten
from disttrain.checkpoint.manifest import FileEntry, Hash, Manifest
from disttrain.checkpoint.objects import Objects
from disttrain.checkpoint.shard_file import ShardFile
from disttrain.parameter_server import restoring, stopped_objects, writing
from disttrain.parameter_server.restoring import FormerShard, MakeValues, RestoredShard, Wanted
from disttrain.parameter_server.state import ShardState
from disttrain.parameter_server.values import Values, bytes_of, ranges_of
from disttrain.transport.header import Vector

FOLDER = "stopped"
"""Beside the checkpoints."""

_LARGEST_BYTES = 65_536


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """What a saved shard is."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    job_uid: str
    shards: int
    update_rule: str
    checkpoint: int
    """The last checkpoint that has a part of this life, or that it began with; 0 without one."""
    version: int
    samples: int
    elements: dict[int, int]
    bytes: int
    hash: Hash
    incarnation: int = 0
    """Of the life that saved it; earlier versions did not say."""


_STOP = TypeAdapter(Stop)


@dataclass(frozen=True, kw_only=True, slots=True)
class Saver:
    """Knows whose shard it is."""

    folder: Path
    job_uid: str
    update_rule: str
    objects: Objects | None = None
    """Where they go from the folder; None: they stay there."""

    def save(self, state: ShardState, values: Values, checkpoint: int) -> None:
        """Write everything, on disk; nothing may be applied meanwhile or after it.

        `checkpoint` as in `Stop`. Raises CheckpointError.
        """
        durable.make_folder(self.folder)
        self._refuse_older(state)
        cut = writing.cut(checkpoint, state, values)
        path = self.folder / names.shard_file(state.index)
        written = shard_file.write(path, writing.contents(cut), cut.metadata)
        stop = Stop(
            job_uid=self.job_uid,
            shards=state.shards,
            update_rule=self.update_rule,
            checkpoint=checkpoint,
            version=state.count,
            samples=state.samples,
            elements={int(vector): count for vector, count in state.elements.items()},
            bytes=written.bytes,
            hash=written.hash,
            incarnation=state.incarnation,
        )
        with DurableFile(_said(path)) as file:
            file.write(_STOP.dump_json(stop))
        if self.objects is not None:
            stopped_objects.send(self.objects, _entry(path, stop), _said(path))

    def _refuse_older(self, state: ShardState) -> None:
        """What a newer life has saved stays: this one, perhaps on a lost node, is fenced."""
        path = self.folder / names.shard_file(state.index)
        if self.objects is not None:
            stopped_objects.bring_said(self.objects, path.name, _said(path))
        with suppress(Corrupt):
            found = _read(_said(path)) if _said(path).exists() else None
            newest = 0 if found is None or found.job_uid != self.job_uid else found.incarnation
            if newest > state.incarnation:
                message = f"life {newest} of this shard has saved; life {state.incarnation} is over"
                raise NotWritten(message)


def read(
    folder: Path, job_uid: str, wanted: Wanted, objects: Objects | None = None
) -> RestoredShard | None:
    """What the life before has saved; None if it is not of this job as it is now, or none is there.

    Raises Corrupt, and StoreAway or StoreDenied for an object store.
    """
    path = folder / names.shard_file(wanted.shard)
    if objects is not None:
        stopped_objects.bring_said(objects, path.name, _said(path))
    if not _said(path).exists():
        return None
    stop = _read(_said(path))
    make = wanted.room(stop.update_rule)
    if (stop.job_uid, stop.shards) != (job_uid, wanted.shards) or make is None:
        return None
    if objects is not None:
        stopped_objects.bring(objects, _entry(path, stop), folder)
    found = shard_file.digest_of(path)
    if (found.bytes, found.hash) != (stop.bytes, stop.hash):
        raise Corrupt(path, f"its hash is {found.hash}, {_said(path).name} says {stop.hash}")
    with shard_file.opened(path) as file:
        return _restored(file, stop, wanted, make)


def is_newer(stopped: RestoredShard, shard: int, checkpoint: Manifest | None) -> bool:
    """Whether what was saved at a stop goes on from this checkpoint, the newest of all."""
    if checkpoint is None or len(checkpoint.shards) != stopped.shards:
        return checkpoint is None
    at_checkpoint = checkpoint.shards[shard].version
    return stopped.checkpoint >= checkpoint.number and stopped.version >= at_checkpoint


def _entry(path: Path, stop: Stop) -> FileEntry:
    return FileEntry(name=path.name, bytes=stop.bytes, hash=stop.hash)


def _said(path: Path) -> Path:
    return path.with_suffix(".json")


def _read(path: Path) -> Stop:
    try:
        return _STOP.validate_json(shard_file.small_content(path, _LARGEST_BYTES))
    except ValidationError as error:
        raise Corrupt(path, f"it says nothing of a shard: {error.errors()[0]['msg']}") from error


def _restored(file: ShardFile, stop: Stop, wanted: Wanted, make: MakeValues) -> RestoredShard:
    elements = {Vector(vector): count for vector, count in stop.elements.items()}
    ranges = ranges_of(elements, wanted.shard, wanted.shards)
    values = make(ranges, wanted.chunk_bytes, file.metadata)
    for vector, held in values.ranges.items():
        if held.count:
            file.read(names.values(vector), 0, values.bytes_of(vector, held))
    for name, state in values.state.items():
        if state.numel():
            file.read(names.state(values.trainable, name), 0, bytes_of(state))
    delivered = restoring.table_of(file)
    return RestoredShard(
        checkpoint=stop.checkpoint,
        shards=wanted.shards,
        values=values,
        elements=elements,
        version=stop.version,
        samples=stop.samples,
        delivered=delivered,
        former={wanted.shard: FormerShard(version=stop.version, delivered=delivered)},
    )
