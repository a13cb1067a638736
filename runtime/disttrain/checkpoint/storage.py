"""How the durable things of a job lie at its location, and how a checkpoint appears and goes there.

A file is named by what is in it, and the manifest, which is named by the checkpoint's number, comes
last. In a folder each checkpoint is a folder of its own, as people want to find and copy it.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from disttrain.checkpoint import durable, names, reading
from disttrain.checkpoint.blobs import Blobs, FolderBlobs
from disttrain.checkpoint.errors import Corrupt, NotWritten
from disttrain.checkpoint.manifest import FileEntry, Manifest
from disttrain.checkpoint.objects import open_objects
from disttrain.job.location import Location


class Storage:
    """Names and places of a job's blobs in an object store; `FolderStorage` has those of a folder.

    Raises as `Blobs` do.

    There is a checkpoint if its manifest is there, and what any manifest names is not deleted.
    """

    def __init__(self, blobs: Blobs, folder: Path) -> None:
        self.blobs = blobs
        self.home = folder.absolute() / "read"
        """Where the files of a checkpoint are, in a folder by its number, once they are at hand."""
        self._folder = folder.absolute()
        """For copies."""
        self.pending_deletes: frozenset[str] = frozenset()
        """Blobs whose deletion got no answer: they may be gone at any time, until they are."""

    def drop_copies(self) -> None:
        """Delete what `home` has and the blobs have, too. Never raises."""
        shutil.rmtree(self.home, ignore_errors=True)

    def manifest(self, number: int) -> str:
        """The name of the manifest of a committed checkpoint."""
        return names.manifest_object(number)

    def stored(self, number: int, entry: FileEntry) -> str:
        """The name of another file of a committed checkpoint."""
        return names.data(entry)

    def staged(self, number: int, entry: FileEntry) -> str:
        """The name of such a file before the checkpoint is committed."""
        return self.stored(number, entry)

    def place(self, number: int) -> str:
        """Where a committed checkpoint lies, as people and replicas understand it."""
        return f"{self.blobs.uri}/{self.manifest(number)}"

    def staging(self, number: int) -> str:
        """The same of one that is being written, as `names.staged_number` understands it."""
        return self.place(number)

    def numbers(self) -> set[int]:
        """Of all checkpoints that are there; damaged ones count."""
        found = map(names.number_of_object, self.blobs.sizes(names.CHECKPOINTS))
        return {number for number in found if number is not None}

    def begin(self, number: int) -> None:
        """Make room for a checkpoint, and have nothing in it."""
        if self.pending_deletes:
            # Before shards look what is there, which they do not write again.
            self.blobs.delete(self.pending_deletes)
            self.pending_deletes &= self.blobs.sizes(names.DATA).keys()

    def abandon(self, number: int) -> None:
        """Delete what was staged, unless that is left to `tidy`. Never raises."""

    def staged_sizes(self, number: int) -> Mapping[str, int]:
        """The bytes of what a checkpoint of this number can have, by its name as `staged`."""
        return self.blobs.sizes(names.DATA)

    def sharing(self) -> Sequence[int]:
        """The checkpoints that `share` can take a file of, newest first."""
        return ()

    def share(self, number: int, entry: FileEntry, earlier: int) -> bool:
        """Have a file of an earlier checkpoint in the one that is staged; whether that was so."""
        return False

    def room(self, number: int | None) -> AbstractContextManager[Path]:
        """A folder for files of this checkpoint until they are uploaded; None: of a final snapshot.

        A shard may read one checkpoint while it writes another one.
        """
        # Of one name for all numbers: so what a killed shard left goes at the next writing.
        return _emptied(self._folder / (names.FINAL_SNAPSHOTS if number is None else "written"))

    def publish(self, number: int, manifest: bytes) -> None:
        """Have everybody find the checkpoint. Raises AlreadyThere."""
        name = self.manifest(number)
        try:
            # Another coordinator may have committed one of this number.
            self.blobs.create(name, manifest)
        except NotWritten:
            # The answer may be what was lost.
            if not self.blobs.holds(name, manifest):
                raise

    def remove(self, numbers: Iterable[int]) -> None:
        """Have nobody find these checkpoints. Never raises."""
        self.blobs.delete(map(self.manifest, numbers))

    def tidy(self, kept: Sequence[int], manifest_of: Callable[[int], Manifest]) -> None:
        """Delete what no checkpoint needs: these, or one that is there since. Raises Corrupt."""
        if not kept:
            return
        # Listed before the manifests are read: what comes meanwhile is not deleted.
        there = self.blobs.sizes(names.DATA)
        manifests = [manifest_of(number) for number in {*kept, *self.numbers()}]
        named = {names.data(entry) for one in manifests for entry in one.files}
        self.pending_deletes |= self.blobs.delete(there.keys() - named)

    def final_snapshot(self, part: str, content_hash: str) -> str:
        return f"{names.FINAL_SNAPSHOTS}/{part}/{names.plain_hash(content_hash)}"

    def final_snapshot_note(self, part: str) -> str:
        """The name of what says which part that is."""
        return f"{names.FINAL_SNAPSHOTS}/{part}.json"


class FolderStorage(Storage):
    """Checkpoints are written into a staging folder, which gets its number by one rename."""

    def __init__(self, folder: Path) -> None:
        super().__init__(FolderBlobs(folder), folder)
        self.home = folder.absolute()

    def drop_copies(self) -> None:
        """There are none."""

    def manifest(self, number: int) -> str:
        return f"{names.folder(number)}/{names.MANIFEST}"

    def stored(self, number: int, entry: FileEntry) -> str:
        return f"{names.folder(number)}/{entry.name}"

    def staged(self, number: int, entry: FileEntry) -> str:
        return f"{names.staging(number)}/{entry.name}"

    def place(self, number: int) -> str:
        return str(self.home / names.folder(number))

    def staging(self, number: int) -> str:
        return str(self.home / names.staging(number))

    def numbers(self) -> set[int]:
        found = (names.number(path.name) for path in self._entries())
        return {number for number in found if number is not None}

    def begin(self, number: int) -> None:
        self.abandon(number)
        durable.make_folder(self.home / names.staging(number))

    def abandon(self, number: int) -> None:
        shutil.rmtree(self.staging(number), ignore_errors=True)

    def staged_sizes(self, number: int) -> Mapping[str, int]:
        return self.blobs.sizes(names.staging(number))

    def sharing(self) -> Sequence[int]:
        return sorted(self.numbers(), reverse=True)

    def share(self, number: int, entry: FileEntry, earlier: int) -> bool:
        """By a link: each folder is whole by itself, and a file gone with the last that has it."""
        source, target = self.stored(earlier, entry), self.staged(number, entry)
        return _linked(self.home / source, entry, self.home / target)

    def room(self, number: int | None) -> AbstractContextManager[Path]:
        folder = self.home / (names.FINAL_SNAPSHOTS if number is None else names.staging(number))
        durable.make_folder(folder)
        return nullcontext(folder)

    def publish(self, number: int, manifest: bytes) -> None:
        # That syncs the folder, too, with the links in it.
        self.blobs.write(f"{names.staging(number)}/{names.MANIFEST}", manifest)
        durable.rename(self.home / names.staging(number), self.home / names.folder(number))

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            # Renamed first: a half-deleted checkpoint must not look like a damaged one.
            target = self.home / names.removal(number)
            with suppress(OSError):
                (self.home / names.folder(number)).rename(target)
                shutil.rmtree(target, ignore_errors=True)

    def tidy(self, kept: Sequence[int], manifest_of: Callable[[int], Manifest]) -> None:
        """What interrupted writings and deletions left, but for what is newer than all."""
        newest = names.staging(max(kept, default=0) + 1)
        for path in self._entries():
            if names.is_leftover(path.name) and path.name != newest:
                shutil.rmtree(path, ignore_errors=True)

    def final_snapshot(self, part: str, content_hash: str) -> str:
        return f"{names.FINAL_SNAPSHOTS}/{part}"

    def final_snapshot_note(self, part: str) -> str:
        return f"{names.FINAL_SNAPSHOTS}/{Path(part).with_suffix('.json')}"

    def _entries(self) -> tuple[Path, ...]:
        try:
            return tuple(self.home.iterdir())
        except FileNotFoundError:
            return ()


def open_storage(location: Location) -> Storage:
    """The storage at a location, which needs not exist. Raises StoreRefused and StoreAway."""
    if location.uri:
        return Storage(open_objects(location.uri), location.folder)
    return FolderStorage(location.folder)


@contextmanager
def _emptied(folder: Path) -> Iterator[Path]:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        durable.make_folder(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _linked(source: Path, entry: FileEntry, target: Path) -> bool:
    try:
        reading.check_length(source, entry.bytes)
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return True  # Another vector has the same elements.
    except (Corrupt, OSError):
        # Where links are not to be had, the vector is written again.
        return False
    return True
