"""Checkpoints as objects: the manifest names what it needs by its content, and is written last.

A manifest's name is the number of its checkpoint, and whoever finds it finds all that it names:
the commit looks for every file before it writes the manifest, and what any manifest names is not
deleted. Only the coordinator deletes, between two checkpoints.
"""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from disttrain.checkpoint import digest, manifest_text, names, object_names
from disttrain.checkpoint.errors import (
    AlreadyThere,
    CheckpointError,
    Corrupt,
    NoCheckpoint,
    NotWritten,
)
from disttrain.checkpoint.manifest import FileEntry, Manifest
from disttrain.checkpoint.manifest_text import MalformedManifest
from disttrain.checkpoint.objects import Objects
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.store import LARGEST_LEDGER_BYTES, readable
from disttrain.telemetry import logs

LOG = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class ObjectStaging:
    """A checkpoint that is being written."""

    objects: Objects

    def write_coordinator(self, content: bytes) -> FileEntry:
        entry = FileEntry(name=names.COORDINATOR, bytes=len(content), hash=digest.of(content))
        self.objects.write(object_names.data(entry), content)
        return entry


class ObjectStore:
    """A `stores.CheckpointStore`; raises StoreAway and StoreDenied besides what that says."""

    def __init__(self, objects: Objects, folder: Path) -> None:
        self.objects = objects
        self._folder = folder.absolute()
        """Of copies."""
        self._unsettled: frozenset[str] = frozenset()
        """Data whose deletion got no answer: it may be gone at any time, until it is."""

    def next_number(self) -> int:
        return max(self.numbers(), default=0) + 1

    def begin(self, number: int) -> ObjectStaging:
        if number in self.numbers():
            message = (
                f"{self.objects.uri}/{object_names.manifest(number)} exists already; "
                f"begin checkpoint {self.next_number()} instead"
            )
            raise AlreadyThere(message)
        if self._unsettled:
            # Before shards look what is there, which they do not write again.
            self.objects.delete(self._unsettled)
            self._unsettled &= self.objects.sizes(object_names.DATA).keys()
        return ObjectStaging(self.objects)

    def commit(self, manifest: Manifest) -> Checkpoint:
        content = readable(manifest, self.place(manifest.number))
        found = self.objects.sizes(object_names.DATA)
        for entry in manifest.files:
            self._check(entry, found.get(object_names.data(entry)))
            self._require_settled(entry)
        name = object_names.manifest(manifest.number)
        try:
            # Another coordinator may have committed one of this number.
            self.objects.create(name, content)
        except NotWritten:
            # The answer may be what was lost.
            if not self._is_there(name, content):
                raise
        return Checkpoint(self._folder / names.folder(manifest.number), manifest)

    def abandon(self, number: int) -> None:
        """Nothing: nobody finds what no manifest names, and `retain` deletes it."""

    def retain(self, keep: int) -> tuple[int, ...]:
        """See `CheckpointStore`. What interrupted writings left is deleted, too."""
        old: tuple[int, ...] = ()
        try:
            kept = [checkpoint.manifest.number for checkpoint in self.list()][-max(keep, 1) :]
            if not kept:
                return old
            # Damaged ones, too: as long as one is there, nothing is sure to be unnamed.
            old = tuple(number for number in self.numbers() if number < kept[0])
            self.objects.delete(object_names.manifest(number) for number in old)
            self._delete_unnamed(kept)
        except CheckpointError as error:
            LOG.warning("what no checkpoint needs stays until the next", reason=str(error))
        return old

    def numbers(self) -> tuple[int, ...]:
        found = map(object_names.number, self.objects.sizes(object_names.CHECKPOINTS))
        return tuple(sorted(number for number in found if number is not None))

    def list(self) -> tuple[Checkpoint, ...]:
        return tuple(reversed(list(self._newest_first())))

    def latest(self) -> Checkpoint | None:
        return next(self._newest_first(), None)

    def read(self, path: Path) -> Checkpoint:
        number = names.number(path.name)
        if number is None or number not in self.numbers():
            message = f"{self.objects.uri} holds no checkpoint {path.name}"
            raise NoCheckpoint(message)
        return self._read(number)

    def ledger(self, checkpoint: Checkpoint) -> bytes:
        entry = checkpoint.manifest.coordinator
        if entry is None:
            raise Corrupt(checkpoint.path, f"it has no {names.COORDINATOR}")
        content = self.objects.read(
            object_names.data(entry), min(entry.bytes, LARGEST_LEDGER_BYTES)
        )
        if digest.of(content) != entry.hash:
            raise Corrupt(self._said(entry), "its hash is not that of its name")
        return content

    def bring(self, checkpoint: Checkpoint, files: Iterable[FileEntry] | None = None) -> None:
        """See `CheckpointStore`. Raises StoreAway, too, when there is no room for them."""
        folder = checkpoint.path
        folder.mkdir(parents=True, exist_ok=True)
        for entry in checkpoint.manifest.files if files is None else files:
            if not (folder / entry.name).exists():
                self._download(entry, folder)
        if files is None:
            (folder / names.MANIFEST).write_bytes(manifest_text.encode(checkpoint.manifest))

    def drop_copies(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def staging(self, number: int) -> str:
        """The same as of a committed one: parts have no place of their own."""
        return self.place(number)

    def place(self, number: int) -> str:
        return f"{self.objects.uri}/{object_names.manifest(number)}"

    def _download(self, entry: FileEntry, folder: Path) -> None:
        unfinished = folder / f".{entry.name}.partial"
        self.objects.download(object_names.data(entry), unfinished, entry.bytes)
        unfinished.rename(folder / entry.name)

    def _delete_unnamed(self, kept: Iterable[int]) -> None:
        # Listed before the manifests are read: what comes meanwhile is not deleted.
        there = self.objects.sizes(object_names.DATA)
        manifests = [self._read(number).manifest for number in {*kept, *self.numbers()}]
        named = {object_names.data(entry) for one in manifests for entry in one.files}
        self._unsettled |= self.objects.delete(there.keys() - named)

    def _require_settled(self, entry: FileEntry) -> None:
        if object_names.data(entry) in self._unsettled:
            message = (
                f"{self._said(entry)} was to be deleted, which got no answer and may still happen; "
                "the next checkpoint tries again"
            )
            raise NotWritten(message)

    def _newest_first(self) -> Iterator[Checkpoint]:
        for number in reversed(self.numbers()):
            with suppress(Corrupt):
                yield self._read(number)

    def _read(self, number: int) -> Checkpoint:
        name = object_names.manifest(number)
        content = self.objects.read(name, manifest_text.LIMIT_BYTES)
        try:
            manifest = manifest_text.parse(content)
        except MalformedManifest as error:
            raise Corrupt(f"{self.objects.uri}/{name}", str(error)) from error
        if manifest.number != number:
            reason = f"it is of checkpoint {manifest.number}"
            raise Corrupt(f"{self.objects.uri}/{name}", reason)
        return Checkpoint(self._folder / names.folder(number), manifest)

    def _is_there(self, name: str, content: bytes) -> bool:
        with suppress(CheckpointError):
            return self.objects.read(name, len(content)) == content
        return False

    def _check(self, entry: FileEntry, found: int | None) -> None:
        if found != entry.bytes:
            reason = "it is missing" if found is None else f"it has {found} bytes"
            raise Corrupt(self._said(entry), f"{reason}; the manifest says {entry.bytes} bytes")

    def _said(self, entry: FileEntry) -> str:
        return f"{self.objects.uri}/{object_names.data(entry)} ({entry.name})"
