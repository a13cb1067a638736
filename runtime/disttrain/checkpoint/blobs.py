"""Whole named things at one place, `a/b`, whatever keeps them: what is durable is written once.

A blob is there whole or not at all, and every process sees it from then on.
"""

import os
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from disttrain.checkpoint import durable, part_file, reading
from disttrain.checkpoint.errors import AlreadyThere, CheckpointError, StoreAway
from disttrain.telemetry import logs

LOG = logs.get(__name__)


class Blobs(ABC):
    """Blobs by name. Any thread.

    Reading raises StoreAway and StoreDenied; writing StoreDenied, StoreRefused where nothing can
    ever be written, and NotWritten, after which the blob may be there later.
    """

    uri: str
    """Where they are, for people."""
    poll_seconds: float
    """What somebody who waits for a blob lets pass between two looks."""

    @abstractmethod
    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of every blob below `folder`, by name."""

    @abstractmethod
    def read(self, name: str, limit_bytes: int) -> bytes:
        """A small one. Raises Corrupt when there is none or it is longer."""

    @abstractmethod
    def read_all(self, sizes: Mapping[str, int]) -> dict[str, bytes]:
        """Several by name; `sizes` as they were listed. Raises as `read`."""

    @abstractmethod
    def download(self, name: str, file: Path, expected_bytes: int | None = None) -> None:
        """Copy one, of this length, into a file, unless it is that file. Raises as `read`.

        StoreAway, too, when there is no room for the file.
        """

    def holds(self, name: str, content: bytes) -> bool:
        """Whether one is there that is this; False, too, where that is not known."""
        with suppress(CheckpointError):
            return self.read(name, len(content)) == content
        return False

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Write one, in place of what has the name."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> None:
        """Write one that is not there. Raises AlreadyThere."""

    @abstractmethod
    def upload(self, file: Path, name: str) -> None:
        """Write one with the content of a durable file, which may be its own."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> frozenset[str]:
        """Delete them; those that may stay, or go later. Never raises."""


class FolderBlobs(Blobs):
    """Files below a folder, which needs not exist."""

    poll_seconds = 2.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.uri = str(self.folder)

    def sizes(self, folder: str) -> dict[str, int]:
        try:
            return dict(self._found(folder))
        except OSError as error:
            raise _away(error.filename, error) from error

    def _found(self, folder: str) -> Iterator[tuple[str, int]]:
        for parent, _, files in os.walk(self.folder / folder, onerror=_unless_missing):
            # Hidden ones are being written.
            for path in (Path(parent, file) for file in files if not file.startswith(".")):
                with suppress(FileNotFoundError):
                    status = path.lstat()
                    if stat.S_ISREG(status.st_mode):
                        yield str(path.relative_to(self.folder)), status.st_size

    def read(self, name: str, limit_bytes: int) -> bytes:
        return part_file.small_content(self.folder / name, limit_bytes)

    def read_all(self, sizes: Mapping[str, int]) -> dict[str, bytes]:
        return {name: self.read(name, size) for name, size in sizes.items()}

    def download(self, name: str, file: Path, expected_bytes: int | None = None) -> None:
        path = self.folder / name
        reading.check_length(path, expected_bytes)
        if path != file:
            try:
                shutil.copyfile(path, file)
            except OSError as error:
                raise _away(path, error) from error

    def write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        durable.make_folder(path.parent)
        durable.write(path, content)

    def create(self, name: str, content: bytes) -> None:
        path = self.folder / name
        durable.make_folder(path.parent)
        try:
            durable.create(path, content)
        except FileExistsError as error:
            message = f"{path} is there already"
            raise AlreadyThere(message) from error

    def upload(self, file: Path, name: str) -> None:
        path = self.folder / name
        if path != file:
            durable.make_folder(path.parent)
            durable.rename(file, path)

    def delete(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if not self._is_deleted(name))

    def _is_deleted(self, name: str) -> bool:
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            LOG.warning("a file stays", name=name, reason=error)
            return False
        return True


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _away(path: Path | str, error: OSError) -> StoreAway:
    return StoreAway(f"{path} could not be read: {error.strerror or error}")
