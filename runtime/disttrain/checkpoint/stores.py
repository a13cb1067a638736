"""Where checkpoints are kept, whatever keeps them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from disttrain.checkpoint import objects
from disttrain.checkpoint.manifest import FileEntry, Manifest
from disttrain.checkpoint.object_parts import ObjectParts
from disttrain.checkpoint.object_store import ObjectStore
from disttrain.checkpoint.parts import FolderParts, Parts
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.store import Store
from disttrain.job.location import Location

_READ = "read"
_WRITTEN = "written"
"""Of a location's folder for copies. A shard may return to a checkpoint while it writes one."""


class Staged(Protocol):
    """A checkpoint that is being written, for the coordinator."""

    def write_coordinator(self, content: bytes) -> FileEntry:
        """Write the coordinator's file. Raises NotWritten."""


class CheckpointStore(Protocol):
    """The checkpoints of one job: each is there whole or not at all.

    One process (the coordinator) begins, commits and deletes; any process may read meanwhile.
    `contract/test_checkpoint_stores.py` is what every implementation has to pass.
    """

    def next_number(self) -> int:
        """A number higher than every one that is there, from 1; damaged ones count."""

    def begin(self, number: int) -> Staged:
        """Begin to write a checkpoint. Raises AlreadyThere, NotWritten."""

    def commit(self, manifest: Manifest) -> Checkpoint:
        """Make a checkpoint whose files are all there one that everybody finds, whatever dies.

        Raises NotWritten, and Corrupt if a file is missing or has another length.
        """

    def abandon(self, number: int) -> None:
        """Give up what was begun; nothing happens if there is nothing. Never raises."""

    def retain(self, keep: int) -> tuple[int, ...]:
        """Delete all but the newest `keep` (at least 1); the numbers deleted. Never raises."""

    def numbers(self) -> tuple[int, ...]:
        """Of all that are there, oldest first; damaged ones count."""

    def list(self) -> tuple[Checkpoint, ...]:
        """The checkpoints with a good manifest, oldest first. Their files may not be at hand."""

    def latest(self) -> Checkpoint | None:
        """The newest of them; None if there is none."""

    def read(self, path: Path) -> Checkpoint:
        """The one in this folder, which is or would be its own. Raises NoCheckpoint, Corrupt."""

    def ledger(self, checkpoint: Checkpoint) -> bytes:
        """The coordinator's file of a checkpoint. Raises Corrupt."""

    def bring(self, checkpoint: Checkpoint, files: Iterable[FileEntry] | None = None) -> None:
        """Have these files in the checkpoint's folder; None: all, and the manifest.

        What is read there has to be checked as ever. Raises Corrupt when a file is not to be had.
        """

    def drop_copies(self) -> None:
        """Delete what `bring` took space for. Never raises."""

    def staging(self, number: int) -> str:
        """Where the parts of a checkpoint are written, as `open_parts` understands it."""

    def place(self, number: int) -> str:
        """Where a committed checkpoint lies, as replicas understand it."""


def open_store(location: Location) -> CheckpointStore:
    """The store at a location, which needs not exist before the first checkpoint.

    Raises StoreRefused and StoreAway. What an object store answers may be StoreAway or StoreDenied
    at any time.
    """
    if location.uri:
        return ObjectStore(objects.open_objects(location.uri), location.folder / _READ)
    return Store(location.folder)


def open_parts(location: Location) -> Callable[[str], Parts]:
    """What gives the place of a shard's part of the checkpoint that is written at a `staging`.

    Raises StoreRefused and StoreAway. To connect to an object store costs a shard time, so it is
    done once.
    """
    if not location.uri:
        return lambda staging: FolderParts(Path(staging))
    found, folder = objects.open_objects(location.uri), location.folder / _WRITTEN
    return lambda _: ObjectParts(found, folder)
