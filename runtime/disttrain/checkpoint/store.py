"""The folder of a job's checkpoints: each is there whole or not at all.

A checkpoint is written into a staging folder: the shards' files, the coordinator's, the manifest
last; then the folder gets its number by one rename. One process (the coordinator) begins, commits
and deletes; any process may read meanwhile.
"""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from disttrain.checkpoint import digest, durable, manifest_text, names, part_file, reading
from disttrain.checkpoint.durable import DurableFile
from disttrain.checkpoint.errors import AlreadyThere, Corrupt, NoCheckpoint
from disttrain.checkpoint.manifest import FileEntry, Manifest
from disttrain.checkpoint.manifest_text import MalformedManifest
from disttrain.checkpoint.reading import Checkpoint

LARGEST_LEDGER_BYTES = 1 << 30
"""Of a coordinator's state no more is read."""


@dataclass(frozen=True, slots=True)
class Staging:
    """A checkpoint that is being written."""

    number: int
    path: Path
    """Where the shards write their files; absolute."""

    def write_coordinator(self, content: bytes) -> FileEntry:
        with DurableFile(self.path / names.COORDINATOR, len(content)) as file:
            file.write(content)
        return FileEntry(name=names.COORDINATOR, bytes=len(content), hash=digest.of(content))


class Store:
    """The checkpoints in one folder, which needs not exist before the first one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def next_number(self) -> int:
        return max(self.numbers(), default=0) + 1

    def begin(self, number: int) -> Staging:
        final, path = self.folder / names.folder(number), self.folder / names.staging(number)
        if final.exists():
            message = f"{final} exists already; begin checkpoint {self.next_number()} instead"
            raise AlreadyThere(message)
        shutil.rmtree(path, ignore_errors=True)
        durable.make_folder(path)
        return Staging(number=number, path=path)

    def commit(self, manifest: Manifest) -> Checkpoint:
        """Write the manifest and give the staged checkpoint its number, both on disk.

        The files named in the manifest must be on disk already. Raises NotWritten, and Corrupt
        if one of the files is missing or has another length, or if nobody could read the manifest.
        """
        staging = self.folder / names.staging(manifest.number)
        content = readable(manifest, staging)
        for entry in manifest.files:
            reading.check_length(staging / entry.name, entry)
        with DurableFile(staging / names.MANIFEST) as file:
            file.write(content)
        final = self.folder / names.folder(manifest.number)
        durable.rename_folder(staging, final)
        return Checkpoint(final, manifest)

    def abandon(self, number: int) -> None:
        """Delete what was staged; nothing happens if there is nothing."""
        shutil.rmtree(self.folder / names.staging(number), ignore_errors=True)

    def numbers(self) -> tuple[int, ...]:
        numbers = (names.number(path.name) for path in self._entries())
        return tuple(sorted(number for number in numbers if number is not None))

    def list(self) -> tuple[Checkpoint, ...]:
        found = []
        for number in self.numbers():
            with suppress(Corrupt, NoCheckpoint):
                found.append(reading.read(self.folder / names.folder(number)))
        return tuple(found)

    def latest(self) -> Checkpoint | None:
        return next(self._newest_first(), None)

    def read(self, path: Path) -> Checkpoint:
        """As `reading.read`."""
        return reading.read(path)

    def ledger(self, checkpoint: Checkpoint) -> bytes:
        file = checkpoint.path / names.COORDINATOR
        return part_file.small_content(file, LARGEST_LEDGER_BYTES)

    def bring(self, checkpoint: Checkpoint, files: Iterable[FileEntry] | None = None) -> None:
        """Nothing: files are where they are."""

    def drop_copies(self) -> None:
        """Nothing: there are none."""

    def staging(self, number: int) -> str:
        return str(self.folder / names.staging(number))

    def place(self, number: int) -> str:
        return str(self.folder / names.folder(number))

    def newest_folder(self) -> Path | None:
        """The folder with the highest number, damaged or not; None if there is none."""
        return next(iter(self.folders()), None)

    def folders(self) -> tuple[Path, ...]:
        """All that have a number, the newest first, damaged or not."""
        return tuple(self.folder / names.folder(number) for number in reversed(self.numbers()))

    def retain(self, keep: int) -> tuple[int, ...]:
        """Delete all but the newest `keep` (at least 1) checkpoints; the numbers deleted.

        What interrupted writings and deletions left is deleted too, except a staging folder
        newer than every checkpoint. Never raises: what cannot be deleted is tried next time.
        """
        whole = [checkpoint.manifest.number for checkpoint in self.list()]
        old = tuple(whole[: -max(keep, 1)])
        for number in old:
            _delete(self.folder, number)
        self._delete_leftovers(max(whole, default=0))
        return old

    def verify(self, path: Path) -> Checkpoint:
        """The checkpoint in a folder after reading and hashing all of its files.

        Raises NoCheckpoint, or Corrupt, which names the file and offers the newest older
        checkpoint of this store that is whole.
        """
        try:
            return reading.verified(path)
        except Corrupt as error:
            previous = self._whole_before(path)
            raise Corrupt(error.file, error.reason, previous) from error

    def _whole_before(self, path: Path) -> Path | None:
        limit = names.number(path.name)
        for checkpoint in self._newest_first():
            if limit is not None and checkpoint.manifest.number < limit:
                with suppress(Corrupt, NoCheckpoint):
                    return reading.verified(checkpoint.path).path
        return None

    def _delete_leftovers(self, newest: int) -> None:
        for path in self._entries():
            if names.is_leftover(path.name) and path.name != names.staging(newest + 1):
                shutil.rmtree(path, ignore_errors=True)

    def _newest_first(self) -> Iterator[Checkpoint]:
        for folder in self.folders():
            with suppress(Corrupt, NoCheckpoint):
                yield reading.read(folder)

    def _entries(self) -> tuple[Path, ...]:
        try:
            return tuple(self.folder.iterdir())
        except FileNotFoundError:
            return ()


def verify(path: Path) -> Checkpoint:
    """As `Store.verify`, for a checkpoint beside others, wherever it lies."""
    return Store(path.absolute().parent).verify(path)


def readable(manifest: Manifest, place: Path | str) -> bytes:
    """The manifest's text. Raises Corrupt for what members have said and no reader would take."""
    content = manifest_text.encode(manifest)
    try:
        manifest_text.parse(content)
    except MalformedManifest as error:
        raise Corrupt(place, str(error)) from error
    return content


def _delete(folder: Path, number: int) -> None:
    # Renamed first: a half-deleted checkpoint must not look like a damaged one.
    source, target = folder / names.folder(number), folder / names.removal(number)
    with suppress(OSError):
        source.rename(target)
        shutil.rmtree(target, ignore_errors=True)
