"""A short private folder for Unix sockets, whose paths have at most 107 bytes.

The launcher locks a file in it for as long as it lives. A folder whose lock is free was left by a
launcher that was killed: the next one removes it. A lock, unlike a process id, cannot be somebody
else's by then.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack
from pathlib import Path

LONGEST_PATH = 107
"""Bytes in sun_path, without the final zero."""

LONGEST_NAME = len("replica-4095") + len(".sock")
"""Bytes of the longest file name that is made in the folder."""

PREFIX = "disttrain-"
OWNER = "launcher.lock"


def create(held: ExitStack) -> Path:
    """An empty folder, which only this user may enter; removes abandoned ones.

    It is there until `held` is closed, or this process ends.
    """
    base = _base()
    for left in base.glob(f"{PREFIX}*"):
        _remove_if_abandoned(left)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    held.callback(os.close, _own(folder))
    held.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _own(folder: Path) -> int:
    descriptor = os.open(folder / ".new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # Found under its name it is locked already: nobody takes this launcher for dead.
    (folder / ".new").rename(folder / OWNER)
    return descriptor


def _remove_if_abandoned(folder: Path) -> None:
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        descriptor = os.open(folder / OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        # Gone, in the making, or something else of this name.
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)
    except OSError:
        # Its launcher lives, or there is more in it than sockets.
        return
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_socket():
            path.unlink()
    if [path.name for path in folder.iterdir()] == [OWNER]:
        shutil.rmtree(folder)


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
