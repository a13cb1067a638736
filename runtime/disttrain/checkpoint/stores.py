"""The checkpoints of one job: each is there whole or not at all, whatever keeps them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from disttrain.checkpoint import digest, manifest_text, names, part_file, reading
from disttrain.checkpoint.errors import (
    AlreadyThere,
    CheckpointError,
    Corrupt,
    NoCheckpoint,
    NotWritten,
)
from disttrain.checkpoint.manifest import FileEntry, Manifest
from disttrain.checkpoint.part_file import Content, Written
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.storage import FolderStorage, Storage, open_storage
from disttrain.job.location import Location
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_LARGEST_LEDGER_BYTES = 1 << 30
"""Of a coordinator's state no more is read."""


@dataclass(frozen=True, slots=True)
class Staging:
    """A checkpoint that is being written, for the coordinator."""

    number: int
    storage: Storage

    def write_coordinator(self, content: bytes) -> FileEntry:
        """Write the coordinator's file. Raises NotWritten."""
        entry = FileEntry(name=names.COORDINATOR, bytes=len(content), hash=digest.of(content))
        self.storage.blobs.write(self.storage.staged(self.number, entry), content)
        return entry


class Parts:
    """A shard's part of a checkpoint that is being written. Belongs to the thread that writes it.

    What it took survives the machine.

    In an object store a file is named by its hash, which is known when its last byte is written: so
    it is written beside, and uploaded then. Raises as `Blobs` do.
    """

    def __init__(self, storage: Storage, number: int) -> None:
        self._storage = storage
        self._number = number

    @cached_property
    def _there(self) -> Mapping[str, int]:
        return self._storage.staged_sizes(self._number)

    @cached_property
    def _sharing(self) -> Sequence[int]:
        return self._storage.sharing()

    def share(self, known: FileEntry) -> bool:
        """Have a vector of an earlier checkpoint in this one, too; whether that was so."""
        return self._has(known) or any(
            self._storage.share(self._number, known, earlier) for earlier in self._sharing
        )

    def write_vector(self, draft: str, content: Content) -> FileEntry:
        with self._storage.room(self._number) as folder:
            entry = part_file.write_vector(folder, draft, content)
            self._send(folder, entry)
        return entry

    def write_part(
        self, index: int, contents: Sequence[Content], metadata: Mapping[str, str]
    ) -> Written:
        name = names.part_file(index)
        with self._storage.room(self._number) as folder:
            written = part_file.write(folder / name, contents, metadata)
            self._send(folder, FileEntry(name=name, bytes=written.bytes, hash=written.hash))
        return written

    def _send(self, folder: Path, entry: FileEntry) -> None:
        if not self._has(entry):
            name = self._storage.staged(self._number, entry)
            self._storage.blobs.upload(folder / entry.name, name)

    def _has(self, entry: FileEntry) -> bool:
        return self._there.get(self._storage.staged(self._number, entry)) == entry.bytes


class Store:
    """Needs nothing to be there before the first checkpoint.

    The coordinator alone begins, commits and deletes; any process may read meanwhile. What an
    object store answers may be StoreAway or StoreDenied at any time.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def staging(self, number: int) -> str:
        return self.storage.staging(number)

    def place(self, number: int) -> str:
        return self.storage.place(number)

    def drop_copies(self) -> None:
        self.storage.drop_copies()

    def next_number(self) -> int:
        """A number higher than every one that is there, from 1; damaged ones count."""
        return max(self.numbers(), default=0) + 1

    def begin(self, number: int) -> Staging:
        """Begin to write a checkpoint. Raises AlreadyThere, NotWritten."""
        if number in self.numbers():
            message = (
                f"{self.place(number)} exists already; "
                f"begin checkpoint {self.next_number()} instead"
            )
            raise AlreadyThere(message)
        self.storage.begin(number)
        return Staging(number, self.storage)

    def commit(self, manifest: Manifest) -> Checkpoint:
        """Make a checkpoint whose files are all there one that everybody finds, whatever dies.

        Raises NotWritten, and Corrupt if a file is missing or has another length, or if nobody
        could read the manifest.
        """
        number = manifest.number
        content = _readable(manifest, self.place(number))
        found = self.storage.staged_sizes(number)
        for entry in manifest.files:
            name = self.storage.staged(number, entry)
            _check(self._said(name, entry), entry, found.get(name))
            if name in self.storage.pending_deletes:
                message = (
                    f"{self._said(name, entry)} was to be deleted, which got no answer and may "
                    "still happen; the next checkpoint tries again"
                )
                raise NotWritten(message)
        self.storage.publish(number, content)
        return self._checkpoint(manifest)

    def abandon(self, number: int) -> None:
        """Give up what was begun; nothing happens if there is nothing. Never raises."""
        self.storage.abandon(number)

    def retain(self, keep: int) -> tuple[int, ...]:
        """Delete all but the newest `keep` (at least 1); the numbers deleted.

        What interrupted writings and deletions left is deleted, too. Never raises: what cannot be
        deleted is tried next time.
        """
        old: tuple[int, ...] = ()
        try:
            kept = [checkpoint.manifest.number for checkpoint in self.list()][-max(keep, 1) :]
            # Damaged ones, too: as long as one is there, nothing is sure to be unneeded.
            old = tuple(number for number in self.numbers() if kept and number < kept[0])
            self.storage.remove(old)
            self.storage.tidy(kept, lambda number: self._read(number).manifest)
        except CheckpointError as error:
            LOG.warning("what no checkpoint needs stays until the next", reason=str(error))
        return old

    def numbers(self) -> tuple[int, ...]:
        """Of all that are there, oldest first; damaged ones count."""
        return tuple(sorted(self.storage.numbers()))

    def list(self) -> tuple[Checkpoint, ...]:
        """The checkpoints with a good manifest, oldest first. Their files may not be at hand."""
        return tuple(reversed(list(self._newest_first())))

    def latest(self) -> Checkpoint | None:
        return next(self._newest_first(), None)

    def newest_folder(self) -> Path | None:
        """The folder of the highest number, damaged or not; None if there is none."""
        newest = max(self.numbers(), default=None)
        return None if newest is None else self._folder(newest)

    def read(self, path: Path) -> Checkpoint:
        """The one in this folder, which is or would be its own. Raises NoCheckpoint, Corrupt."""
        number = names.number(path.name)
        if number is None or number not in self.numbers():
            message = f"{self.storage.blobs.uri} holds no checkpoint {path.name}"
            raise NoCheckpoint(message)
        return self._read(number)

    def ledger(self, checkpoint: Checkpoint) -> bytes:
        """The coordinator's file of a checkpoint. Raises Corrupt."""
        entry = checkpoint.manifest.coordinator
        if entry is None:
            raise Corrupt(checkpoint.path, f"it has no {names.COORDINATOR}")
        name = self.storage.stored(checkpoint.manifest.number, entry)
        content = self.storage.blobs.read(name, min(entry.bytes, _LARGEST_LEDGER_BYTES))
        if digest.of(content) != entry.hash:
            raise Corrupt(self._said(name, entry), "its hash is not that of its manifest")
        return content

    def bring(self, checkpoint: Checkpoint, files: Iterable[FileEntry] | None = None) -> None:
        """Have these files in the checkpoint's folder; None: all, and the manifest.

        What is read there has to be checked as ever. Raises Corrupt when a file is not to be had,
        StoreAway, too, when there is no room for them.
        """
        folder = checkpoint.path
        for entry in checkpoint.manifest.files if files is None else files:
            if not (folder / entry.name).exists():
                name = self.storage.stored(checkpoint.manifest.number, entry)
                unfinished = folder / f".{entry.name}.partial"
                self.storage.blobs.download(name, unfinished, entry.bytes)
                unfinished.rename(folder / entry.name)
        if files is None and not (folder / names.MANIFEST).exists():
            (folder / names.MANIFEST).write_bytes(manifest_text.encode(checkpoint.manifest))

    def _newest_first(self) -> Iterator[Checkpoint]:
        for number in reversed(self.numbers()):
            with suppress(Corrupt):
                yield self._read(number)

    def _read(self, number: int) -> Checkpoint:
        name = self.storage.manifest(number)
        content = self.storage.blobs.read(name, manifest_text.LIMIT_BYTES)
        place = f"{self.storage.blobs.uri}/{name}"
        return self._checkpoint(reading.parsed(content, place, number))

    def _checkpoint(self, manifest: Manifest) -> Checkpoint:
        return Checkpoint(self._folder(manifest.number), manifest)

    def _folder(self, number: int) -> Path:
        return self.storage.home / names.folder(number)

    def _said(self, name: str, entry: FileEntry) -> str:
        place = f"{self.storage.blobs.uri}/{name}"
        return place if place.endswith(entry.name) else f"{place} ({entry.name})"


def in_folder(folder: Path) -> Store:
    return Store(FolderStorage(folder))


def open_store(location: Location) -> Store:
    """The store at a location. Raises StoreRefused and StoreAway."""
    return Store(open_storage(location))


def open_parts(location: Location) -> Callable[[str], Parts]:
    """What gives the place of a shard's part of the checkpoint that is written at a `staging`.

    Raises StoreRefused and StoreAway. To connect to an object store costs a shard time, so it is
    done once.
    """
    storage = open_storage(location)
    return lambda staging: Parts(storage, names.staged_number(staging))


def verify(path: Path) -> Checkpoint:
    """The checkpoint in a folder after reading and hashing all of its files.

    Raises NoCheckpoint, or Corrupt, which names the file and offers the newest older checkpoint
    beside it that is whole.
    """
    try:
        return reading.verified(path)
    except Corrupt as error:
        raise Corrupt(error.file, error.reason, _whole_before(path.absolute())) from error


def _whole_before(path: Path) -> Path | None:
    limit = names.number(path.name)
    store = in_folder(path.parent)
    for number in reversed(store.numbers()):
        if limit is not None and number < limit:
            with suppress(Corrupt, NoCheckpoint):
                return reading.verified(path.with_name(names.folder(number))).path
    return None


def _readable(manifest: Manifest, place: str) -> bytes:
    """The manifest's text. Raises Corrupt for what members have said and no reader would take."""
    content = manifest_text.encode(manifest)
    reading.parsed(content, place, manifest.number)
    return content


def _check(said: str, entry: FileEntry, found: int | None) -> None:
    if found != entry.bytes:
        reason = "it is missing" if found is None else f"it has {found} bytes"
        raise Corrupt(said, f"{reason}; the manifest says {entry.bytes} bytes")
