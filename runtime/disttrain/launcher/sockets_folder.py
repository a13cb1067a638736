"""A short private folder for Unix sockets, whose paths have at most 107 bytes."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

LONGEST_PATH = 107
"""Bytes in sun_path, without the final zero."""

LONGEST_NAME = len("replica-4095") + len(".sock")
"""Bytes of the longest file name that is made in the folder."""


def create() -> Path:
    """Make an empty folder that only this user may enter."""
    return Path(tempfile.mkdtemp(prefix="disttrain-", dir=_base()))


def remove(folder: Path) -> None:
    """Remove the folder with the sockets in it; does nothing when it is gone."""
    shutil.rmtree(folder, ignore_errors=True)


def _base() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [Path(runtime)] if runtime else []
    candidates += [Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108 - mkdtemp is private
    return next(folder for folder in candidates if _is_usable(folder))


def _is_usable(folder: Path) -> bool:
    longest = len(os.fsencode(folder)) + len("/disttrain-12345678/") + LONGEST_NAME
    if longest > LONGEST_PATH or not folder.is_dir() or not os.access(folder, os.W_OK):
        return False
    # A folder that others may write to protects its entries only when it is sticky.
    mode = folder.stat().st_mode
    return not mode & stat.S_IWOTH or bool(mode & stat.S_ISVTX)
