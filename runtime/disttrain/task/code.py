"""What a task's code is: the Python files of its folder, by their hashes."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from disttrain.task.errors import CodeError

MOST_FILES = 2000
_IGNORED = frozenset({"__pycache__", "node_modules", "runs", "venv", "build", "dist"})
"""Folders of caches and results. Whatever begins with a dot is ignored, too."""


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each Python file, by its path in the folder. Raises CodeError."""
    found: dict[str, str] = {}
    for around, below, files in os.walk(folder):
        below[:] = sorted(name for name in below if name not in _IGNORED and name[0] != ".")
        for name in sorted(files):
            if not name.endswith(".py"):
                continue
            file = Path(around, name)
            found[str(file.relative_to(folder))] = hashlib.sha256(_content(file)).hexdigest()
            if len(found) > MOST_FILES:
                message = (
                    f"{folder} holds more than {MOST_FILES} Python files: "
                    "keep the task in a folder of its own"
                )
                raise CodeError(message)
    return found


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        message = f"{file} cannot be read ({error.strerror}): make it readable, or remove it"
        raise CodeError(message) from error


def first_difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """What of another folder's code is not this one's; empty: nothing."""
    for name in sorted({*ours, *theirs}):
        if name not in theirs:
            return f"{name} is missing"
        if name not in ours:
            return f"{name} is no file of the job's"
        if ours[name] != theirs[name]:
            return f"{name} is another one than the job's"
    return ""
