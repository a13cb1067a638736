"""The exact values of a shard that was told to end, kept for its next incarnation.

Nothing is lost then, however long ago the last checkpoint is. Two blobs beside the checkpoints: the
shard's part, as in a checkpoint, and after it a small one that says what it is. A third one says
which incarnation has joined last: what older ones save after that is of no use to anybody.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, TypeAdapter, ValidationError

from disttrain.checkpoint import names, part_file, reading
from disttrain.checkpoint.blobs import Blobs
from disttrain.checkpoint.errors import CheckpointError, Corrupt, NotWritten
from disttrain.checkpoint.manifest import FileEntry, Hash, Manifest, Strict
from disttrain.checkpoint.part_file import PartFile
from disttrain.checkpoint.storage import Storage
from disttrain.holder import writing
from disttrain.holder.restoring import MakeValues, Wanted, notes_of
from disttrain.holder.values import Values
from disttrain.job.update_rule import present_name
from disttrain.parameter_server import restoring
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.shard import Shard
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_LARGEST_BYTES = 65_536

Told = TypeVar("Told")


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotNote(Strict):
    """What a saved shard is."""

    job_uid: str
    epoch: int
    holders: int
    """Of the placement that it is a part of."""
    update_rule: Annotated[str, AfterValidator(present_name)]
    checkpoint: int
    """The last checkpoint that has a part of this incarnation, or that it began with; 0 without
    one."""
    version: int
    samples: int
    bytes: int
    hash: Hash
    incarnation: int = 0
    """Of the incarnation that saved it; earlier versions did not say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun(Strict):
    """The newest incarnation of a shard that has joined, and what it began with."""

    job_uid: str
    incarnation: int
    saved_by: int
    """As in `RestoredShard`."""

    def has_passed_over(self, note: SnapshotNote) -> bool:
        """Whether that was not there yet as this incarnation began, and is of an older one."""
        is_older = note.incarnation < self.incarnation and self.saved_by != note.incarnation
        return is_older and self.job_uid == note.job_uid


_NOTE = TypeAdapter(SnapshotNote)
_BEGUN = TypeAdapter(Begun)


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotWriter:
    """Knows whose shard it is."""

    storage: Storage
    job_uid: str
    update_rule: str

    def begin(self, index: int, incarnation: int, saved_by: int) -> None:
        """Note that this incarnation has joined, so that no older one saves anything any more.

        Raises CheckpointError.
        """
        self._refuse_older(index, incarnation)
        begun = Begun(job_uid=self.job_uid, incarnation=incarnation, saved_by=saved_by)
        self.storage.blobs.write(_begun(index), _BEGUN.dump_json(begun))

    def save(self, state: ShardState, values: Values, checkpoint: int) -> None:
        """Write everything, durably; nothing may be applied meanwhile or after it.

        `checkpoint` as in `SnapshotNote`. Raises CheckpointError; then what was saved before is
        still there in an object store.
        """
        self._refuse_older(state.index, state.incarnation)
        cut = writing.cut(checkpoint, values, state.notes())
        with self.storage.room(None) as folder:
            path = folder / names.part_file(state.index)
            written = part_file.write(path, writing.contents(cut), writing.metadata(cut))
            note = SnapshotNote(
                job_uid=self.job_uid,
                epoch=values.share.placement.epoch,
                holders=len(values.share.placement.holders),
                update_rule=self.update_rule,
                checkpoint=checkpoint,
                version=state.count,
                samples=state.samples,
                bytes=written.bytes,
                hash=written.hash,
                incarnation=state.incarnation,
            )
            self._keep(path, note)

    def _keep(self, path: Path, note: SnapshotNote) -> None:
        blobs, name = self.storage.blobs, self.storage.final_snapshot(path.name, note.hash)
        earlier = blobs.sizes(f"{names.FINAL_SNAPSHOTS}/{path.name}")
        blobs.upload(path, name)
        blobs.write(self.storage.final_snapshot_note(path.name), _NOTE.dump_json(note))
        blobs.delete(earlier.keys() - {name})

    def _refuse_older(self, index: int, incarnation: int) -> None:
        """What a newer incarnation goes on from stays: this one, perhaps on a lost node, is out."""
        for told in (_read_note, _read_begun):
            with suppress(Corrupt):
                found = told(self.storage, index)
                newest = 0 if found is None or found.job_uid != self.job_uid else found.incarnation
                if newest > incarnation:
                    begun = f"incarnation {newest} of this shard has begun"
                    message = f"{begun}; incarnation {incarnation} is over"
                    raise NotWritten(message)


def read(storage: Storage, job_uid: str, wanted: Wanted) -> RestoredShard | None:
    """What the incarnation before has saved; None if none is there, or of another state of the job.

    Raises Corrupt, and StoreAway or StoreDenied for an object store.
    """
    index = wanted.share.holder
    note, begun = _read_note(storage, index), _read_begun(storage, index)
    if note is None or (begun is not None and begun.has_passed_over(note)):
        return None
    make = wanted.makers.get(note.update_rule)
    now = (job_uid, wanted.share.placement.epoch, wanted.holders)
    if (note.job_uid, note.epoch, note.holders) != now or make is None:
        return None
    with storage.room(None) as folder:
        entry = FileEntry(name=names.part_file(index), bytes=note.bytes, hash=note.hash)
        path = folder / entry.name
        storage.blobs.download(storage.final_snapshot(entry.name, entry.hash), path, entry.bytes)
        reading.check(path, entry)
        with part_file.opened(path) as file:
            return _restored(file, note, wanted, make)


def is_newer(snapshot: RestoredShard, shard: int, checkpoint: Manifest | None) -> bool:
    """Whether what was saved at a stop goes on from this checkpoint, the newest of all."""
    holders = len(snapshot.values.share.placement.holders)
    if checkpoint is None or len(checkpoint.holders) != holders:
        return checkpoint is None
    at_checkpoint = checkpoint.holders[shard].version
    return snapshot.checkpoint >= checkpoint.number and snapshot.version >= at_checkpoint


def _begun(index: int) -> str:
    return (
        f"{names.FINAL_SNAPSHOTS}/{Path(names.part_file(index)).with_suffix('.incarnation.json')}"
    )


def _read_note(storage: Storage, index: int) -> SnapshotNote | None:
    return _read(storage.blobs, storage.final_snapshot_note(names.part_file(index)), _NOTE)


def _read_begun(storage: Storage, index: int) -> Begun | None:
    return _read(storage.blobs, _begun(index), _BEGUN)


def _read(blobs: Blobs, name: str, adapter: TypeAdapter[Told]) -> Told | None:
    if name not in blobs.sizes(names.FINAL_SNAPSHOTS):
        return None
    try:
        return adapter.validate_json(blobs.read(name, _LARGEST_BYTES), strict=True)
    except ValidationError as error:
        reason = f"it says nothing of a shard: {error.errors()[0]['msg']}"
        raise Corrupt(f"{blobs.uri}/{name}", reason) from error


def _restored(
    file: PartFile, note: SnapshotNote, wanted: Wanted, make: MakeValues
) -> RestoredShard:
    values = make(wanted.share, file.metadata)
    for vector, tensor in values.vectors.items():
        if tensor.numel():
            file.read(file.name_of(vector), 0, values.all_bytes(vector))
    notes = notes_of(file, note.version, wanted)
    return RestoredShard(
        checkpoint=note.checkpoint,
        update_rule=note.update_rule,
        values=values,
        version=note.version,
        samples=note.samples,
        delivered=restoring.delivered_of(notes),
        steps=restoring.steps_of(notes),
        gathered=restoring.gathered_of([notes]),
        previous={wanted.share.holder: notes},
        saved_by=note.incarnation,
    )


QUIET_SECONDS = 5.0
"""Silence of all replicas after which none is about to push: longer than a step."""
LINGER_SECONDS = 20.0
"""Of the time that a pod gets to end. Replicas that live on need not be waited for."""


class GracefulShutdown:
    """Belongs to the shard's thread.

    Replicas are often told to end at the same moment, and what they push last must be answered.
    """

    def __init__(self, shard: Shard, saver: SnapshotWriter) -> None:
        self.asked = 0.0
        """When a replica last asked for something."""
        self._shard = shard
        self._saver = saver
        self._since: float | None = None

    def begin(self, saved_by: int) -> None:
        """Keep older incarnations of this shard from saving; `saved_by` as in `RestoredShard`."""
        state = self._shard.state
        try:
            self._saver.begin(state.index, state.incarnation, saved_by)
        except CheckpointError as error:
            LOG.warning(
                "what an older incarnation saves from now on may be gone on from", error=error
            )

    def is_due(self, now: float) -> bool:
        """Whether nobody needs the shard's answers any more; the first question begins the wait."""
        if not self._shard.stage.keeps_updates:
            return True
        if self._since is None:
            self._since = now
        has_senders = bool(self._shard.state.deliveries.admitted)
        quiet = now - max(self.asked, self._since)
        return not has_senders or quiet >= QUIET_SECONDS or now - self._since >= LINGER_SECONDS

    def save(self, checkpoint: int) -> bool:
        """Whether all that this incarnation applied is on disk; nothing may be applied after it.

        `checkpoint` is the last one that has a part of this incarnation, or that it began with.
        """
        state = self._shard.state
        if state.values is None or not state.is_initialised or not self._shard.stage.keeps_updates:
            return False
        began = time.perf_counter()
        try:
            self._saver.save(state, state.values, checkpoint)
        except CheckpointError as error:
            LOG.error(
                "could not be saved; the next incarnation begins with a checkpoint", error=error
            )
            return False
        self._shard.records.stopped(state.count)
        LOG.info("saved", version=state.count, seconds=time.perf_counter() - began)
        return True
