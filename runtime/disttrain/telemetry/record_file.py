"""An append-only file of fixed records that outlives kill -9 of its writer and a full disk."""

import os
import threading
from pathlib import Path

from disttrain.telemetry import logs

LOG = logs.get(__name__)


class RecordFile:
    """A record is one write call, and is in the file whole or not at all; any thread.

    What cannot be written is counted in `missing` and left out: a log never ends what it tells of.
    """

    def __init__(self, path: Path, record_bytes: int) -> None:
        """Open or make the file; half a record at its end is cut off. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.missing = 0
        self._path = path
        self._lock = threading.Lock()
        self._descriptor = os.open(path, flags, 0o600)
        found = os.fstat(self._descriptor).st_size
        self._whole_bytes = found // record_bytes * record_bytes
        self._is_torn = found > self._whole_bytes

    def append(self, record: bytes) -> None:
        """Write one record; after `close` nothing. Never raises OSError."""
        with self._lock:
            if self._descriptor < 0:
                return
            try:
                self._write(record)
            except OSError as error:
                self._leave_out(error)

    def close(self) -> None:
        """Closes the file. May be called again."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            if self.missing:
                LOG.warning("records are missing", file=self._path, missing=self.missing)

    def _write(self, record: bytes) -> None:
        self._cut_off_half()
        written = os.write(self._descriptor, record)
        if written == len(record):
            self._whole_bytes += written
            return
        self._is_torn = True
        self._cut_off_half()
        message = f"only {written} of {len(record)} bytes were written"
        raise OSError(message)

    def _cut_off_half(self) -> None:
        if self._is_torn:
            os.ftruncate(self._descriptor, self._whole_bytes)
            self._is_torn = False

    def _leave_out(self, error: OSError) -> None:
        self.missing += 1
        if self.missing == 1:
            LOG.warning(
                "records are left out until the file can be written again: is the disk full?",
                file=self._path,
                error=error,
            )
