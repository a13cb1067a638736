"""Files and folders that are there whole after a crash, or not at all."""

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Self

from disttrain.checkpoint.errors import NotWritten

FLUSH_BYTES = 64 * 1024 * 1024
"""Written bytes that may wait for the disk: bounds dirty memory, and the time of the last sync."""


class DurableFile:
    """A file that gets its name when everything in it is on disk.

    A context manager: leaving it without an exception syncs the file, renames it and syncs the
    folder; any exception removes what was written. Raises NotWritten for what the system refuses.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        """`size`: bytes that it will have, for who has to make room for them; 0 is not known."""
        self.path = path
        """What it will be called; may change within the folder as long as the file is open."""
        self._temporary = path.with_name(f".{path.name}.partial")
        self._size = size
        self._descriptor = -1
        self._unflushed = 0

    def __enter__(self) -> Self:
        """Create the file under its temporary name, over what an earlier incarnation left."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(self._temporary, flags, 0o600)
        except OSError as error:
            raise self._not_written(error) from error
        return self

    def write(self, content: bytes | memoryview) -> None:
        """Append bytes. Raises NotWritten."""
        rest = memoryview(content).cast("B")
        try:
            while rest.nbytes:
                rest = rest[os.write(self._descriptor, rest) :]
            self._bound_dirty_memory(memoryview(content).nbytes)
        except OSError as error:
            raise self._not_written(error) from error

    def overwrite(self, offset: int, content: bytes) -> None:
        """Replace bytes that were written before. Raises NotWritten."""
        try:
            os.pwrite(self._descriptor, content, offset)
        except OSError as error:
            raise self._not_written(error) from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._keep()
        except OSError as failure:
            error = failure
            raise self._not_written(failure) from failure
        finally:
            self._close()
            if error is not None:
                with suppress(OSError):
                    self._temporary.unlink()

    def _keep(self) -> None:
        os.fsync(self._descriptor)
        self._close()
        os.rename(self._temporary, self.path)  # noqa: PTH104 - One system call per line.
        sync_folder(self.path.parent)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _not_written(self, error: OSError) -> NotWritten:
        return _not_written(self.path, error, self._size)

    def _bound_dirty_memory(self, written: int) -> None:
        self._unflushed += written
        if self._unflushed >= FLUSH_BYTES:
            os.fdatasync(self._descriptor)
            self._unflushed = 0


def write(path: Path, content: bytes) -> None:
    """Put this into a file. Raises NotWritten."""
    with DurableFile(path, len(content)) as file:
        file.write(content)


def create(path: Path, content: bytes) -> None:
    """Make a file of this that nobody has made before. Raises FileExistsError, NotWritten."""
    # Nobody else writes into it, and it counts for nothing until it has the name.
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write(draft, content)
        try:
            os.link(draft, path)
        except FileExistsError:
            raise
        except OSError:
            # Where links are not to be had, a crash may leave it empty.
            take_name(path)
        # After a link that changes nothing, as both are one file, and syncs the folder.
        rename(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def take_name(path: Path) -> None:
    """Make a file, empty, that nobody has made before. Raises FileExistsError, NotWritten."""
    try:
        path.touch(0o600, exist_ok=False)
    except FileExistsError:
        raise
    except OSError as error:
        raise _not_written(path, error) from error


def rename(source: Path, target: Path) -> None:
    """Give a file or folder, whose content is on disk, its final name. Raises NotWritten."""
    try:
        os.rename(source, target)  # noqa: PTH104 - As above.
        sync_folder(target.parent)
    except OSError as error:
        raise _not_written(target, error) from error


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, on disk. Raises NotWritten."""
    try:
        if path.is_dir():
            return
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise _not_written(path, error) from error


def _not_written(path: Path, error: OSError, size: int = 0) -> NotWritten:
    reason = error.strerror or str(error)
    room = f"room for its {size:,} bytes" if size else "room"
    message = f"{path} could not be written: {reason}; make {room} or choose another folder"
    return NotWritten(message)
