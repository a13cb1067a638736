"""Small files that a reader sees whole or not at all. Not durable: for what a crash may undo."""

import os
import tempfile
from pathlib import Path

from disttrain.launch import linux

_BLOCK_BYTES = 4096
_MARGIN_BYTES = 4096
"""For numbers that become longer, and for the warning that the disk is full, with its paths."""


def replace(path: Path, content: bytes) -> None:
    """Put `content` into `path`, readable by this user only.

    Raises OSError; then nothing new lies beside the old file.
    """
    # A name that nobody can guess, made only if it is not there: no planted link is followed.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def ensure(path: Path, content: bytes) -> None:
    """The same, unless `content` is there already: that needs no room. Raises OSError."""
    try:
        if path.read_bytes() == content:
            return
    except FileNotFoundError:
        # Never written, removed, or the whole folder is gone, as the writing will tell.
        pass
    replace(path, content)


class KeptFile:
    """A file that is replaced again and again, on a full disk, too. One thread.

    Two files take turns under its name, and each keeps its room for what is written next. What is
    written ends with spaces.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._spare = path.with_name(f".{path.name}.spare")
        self._made = 0
        """Files that this process has made: until both are, nobody else's is written into."""

    def replace(self, content: bytes) -> None:
        """Put `content` into the file. Raises OSError.

        A reader sees it whole who has read it before the next content but one is written.
        """
        with os.fdopen(self._open_spare(), "wb") as stream:
            size = os.fstat(stream.fileno()).st_size
            # The margin is for what comes later: a full disk has none for another one.
            stream.write(content.ljust(size if len(content) <= size else _with_margin(content)))
        if self._made:
            try:
                linux.exchange(self._spare, self._path)
            except OSError:
                # Not every file system can.
                self._made = 0
            else:
                self._made = 2
        if not self._made:
            self._spare.replace(self._path)
            self._made = 1

    def close(self) -> None:
        self._spare.unlink(missing_ok=True)
        self._made = 0

    def _open_spare(self) -> int:
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        if self._made < 2:
            self._spare.unlink(missing_ok=True)
            flags |= os.O_CREAT | os.O_EXCL
        return os.open(self._spare, flags, 0o600)


def _with_margin(content: bytes) -> int:
    """Whole blocks."""
    return -(-(len(content) + _MARGIN_BYTES) // _BLOCK_BYTES) * _BLOCK_BYTES
