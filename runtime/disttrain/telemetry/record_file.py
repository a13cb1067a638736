"""An append-only file of fixed records that outlives kill -9 of its writer and a full disk.

The first record is its head: it says how many others are missing, and is written over in place, for
which even a full disk has room. One file per incarnation of a process, `PROCESS.iINCARNATION.bin`.
"""

import os
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from disttrain.telemetry import logs

LOG = logs.get(__name__)

_NAME = re.compile(
    r"(?P<process>(?:shard|(?P<replica>replica))-(?P<index>\d{1,6})(?(replica)(?:-[1-9]\d{0,3})?))"
    r"\.i(?P<incarnation>\d{1,9})\.bin"
)

_NUMPY_CODES = {"Q": "u8", "q": "i8", "I": "u4", "H": "u2", "B": "u1", "d": "f8"}

Head = Callable[[int], bytes]
"""The record that tells how many others are missing."""


def dtype_of(fields: Sequence[str], form: str) -> np.dtype[np.void]:
    """Records with these fields, as `struct` packs them by `form`, little-endian."""
    codes = form.replace(" ", "")
    return np.dtype(
        [(field, f"<{_NUMPY_CODES[code]}") for field, code in zip(fields, codes, strict=True)]
    )


class RecordFile:
    """A record is one write call, and is in the file whole or not at all; any thread.

    What cannot be written is counted in `missing` and left out: a log never ends what it tells of.
    """

    def __init__(self, path: Path, head: Head) -> None:
        """Open or make the file; half a record at its end is cut off. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.missing = 0
        self._path = path
        self._head = head
        self._lock = threading.Lock()
        self._folding = threading.Lock()
        self._descriptor = logs.open_to_append(path)
        found = os.fstat(self._descriptor).st_size
        record_bytes = len(head(0))
        self._whole_bytes = found // record_bytes * record_bytes
        self._is_torn = found > self._whole_bytes
        self._try(self._begin)

    def append(self, record: bytes) -> None:
        """Write one record; after `close` nothing. Never raises OSError."""
        with self._lock:
            if self._descriptor >= 0 and not self._try(lambda: self._write_after_head(record)):
                self.missing += 1
                self._try(self._tell_missing)

    def fold(self, shorten: Callable[[bytes], bytes]) -> None:
        """Put in place of all records but the head what `shorten` makes of them; any thread.

        Others may append meanwhile; nothing happens while another thread folds. Killed at any step,
        the file is the old or the new one, whole. A full disk leaves it the old one.
        """
        if not self._folding.acquire(blocking=False):
            return
        unfinished = self._path.with_suffix(".unfinished")
        try:
            self._put_in_place(unfinished, self._read_whole(), shorten)
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink()
            LOG.warning("a ledger is not folded: is the disk full?", file=self._path, error=error)
        finally:
            self._folding.release()

    def _read_whole(self) -> bytes:
        with self._lock:
            whole_bytes = self._whole_bytes
        with self._path.open("rb") as present:
            return present.read(whole_bytes)

    def _put_in_place(
        self, unfinished: Path, found: bytes, shorten: Callable[[bytes], bytes]
    ) -> None:
        head_bytes = len(self._head(0))
        unfinished.unlink(missing_ok=True)
        new = logs.open_to_append(unfinished)
        try:
            _write_all(new, found[:head_bytes] + shorten(found[head_bytes:]))
            # Else the rename may outlive the machine, and what was renamed not.
            os.fsync(new)
            with self._lock:
                if self._descriptor < 0:
                    return
                later = self._read_later(len(found))
                _write_all(new, later)
                _write_head(unfinished, self._head(self.missing))
                unfinished.rename(self._path)
                self._whole_bytes = os.fstat(new).st_size
                self._is_torn = False
                self._descriptor, new = new, self._descriptor
        finally:
            os.close(new)

    def _read_later(self, found_bytes: int) -> bytes:
        """What was appended since so many bytes were found, without half a record at the end."""
        with self._path.open("rb") as present:
            present.seek(found_bytes)
            return present.read(self._whole_bytes - found_bytes)

    def close(self) -> None:
        """Closes the file. May be called again."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            if self.missing:
                LOG.warning("records are missing", file=self._path, missing=self.missing)

    def _try(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except OSError as error:
            if not self.missing:
                LOG.warning(
                    "records are left out until the file can be written again: is the disk full?",
                    file=self._path,
                    error=error,
                )
            return False
        return True

    def _begin(self) -> None:
        if not self._whole_bytes:
            self._write(self._head(self.missing))

    def _write_after_head(self, record: bytes) -> None:
        self._begin()
        self._write(record)

    def _tell_missing(self) -> None:
        if self._whole_bytes:
            _write_head(self._path, self._head(self.missing))

    def _write(self, record: bytes) -> None:
        self._cut_off_half()
        written = os.write(self._descriptor, record)
        if written == len(record):
            self._whole_bytes += written
            return
        self._is_torn = True
        self._cut_off_half()
        raise OSError(f"only {written} of {len(record)} bytes were written")

    def _cut_off_half(self) -> None:
        if self._is_torn:
            os.ftruncate(self._descriptor, self._whole_bytes)
            self._is_torn = False


def _write_all(descriptor: int, content: bytes) -> None:
    written = 0
    while written < len(content):
        written += os.write(descriptor, content[written:])


def _write_head(path: Path, head: bytes) -> None:
    # A descriptor of its own: what is opened for appending writes at the end, whatever it says.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, head, 0)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class FileName:
    """Whose file it is."""

    process: str
    """"shard-0", "replica-2"."""
    index: int
    incarnation: int


def path_of(folder: Path, process: str, incarnation: int) -> Path:
    return folder / f"{process}.i{incarnation}.bin"


def parse_name(path: Path) -> FileName | None:
    """Whose file it is; None if it is no such file."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    return FileName(match["process"], int(match["index"]), int(match["incarnation"]))


def read(path: Path, record: np.dtype[np.void]) -> NDArray[np.void]:
    """All whole records of a file, its head included. Raises OSError."""
    content = path.read_bytes()
    whole = len(content) // record.itemsize * record.itemsize
    return np.frombuffer(content[:whole], dtype=record)


def ends_in_half(path: Path, record: np.dtype[np.void]) -> bool:
    """Whether the last record of a file is not whole. Raises OSError."""
    return path.stat().st_size % record.itemsize > 0
