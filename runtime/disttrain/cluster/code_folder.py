"""Reading the folder with a task's code."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from disttrain.cluster import code_map
from disttrain.cluster.code_map import REMEDY, Files
from disttrain.cluster.errors import WrongInput
from disttrain.job.spec import KIND

IGNORED: Final = frozenset({"__pycache__", "node_modules", "runs", "venv", "build", "dist"})
"""Folders of caches and results. Whatever begins with a dot is ignored, too."""
IGNORED_ENDINGS: Final = (".pyc", ".pyo", ".egg-info", ".md", "~")
"""Of caches and of what only people read."""
_MANIFEST: Final = re.compile(rf"^kind: *{KIND} *$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Code:
    """What was found in a folder."""

    files: Files
    folders: tuple[str, ...]
    """Folders in it that were left out: a ConfigMap is flat. They hold no Python files."""


def read(folder: Path) -> Code:
    """The files of a folder, without manifests of jobs. Raises WrongInput if code is missing."""
    try:
        return _read(folder)
    except OSError as error:
        message = f"--code {folder}: must be a folder that can be read: {error.strerror}"
        raise WrongInput(message) from error


def _read(folder: Path) -> Code:
    wanted = [entry for entry in sorted(folder.iterdir()) if not _is_ignored(entry.name)]
    folders = [entry for entry in wanted if entry.is_dir()]
    _require_no_code(folder, folders)
    _require_no_links_outside(folder, wanted)
    files = [entry for entry in wanted if entry.is_file() and not _is_manifest(entry)]
    # Before they are read: a folder may hold a data set.
    code_map.require_fitting({file.name: file.stat().st_size for file in files}, str(folder))
    contents = {file.name: file.read_bytes() for file in files}
    return Code(contents, tuple(entry.name for entry in folders))


def _require_no_links_outside(root: Path, entries: list[Path]) -> None:
    """A folder that somebody sent may name any file of this machine by a link."""
    for entry in entries:
        target = entry.resolve()
        if entry.is_symlink() and not target.is_relative_to(root.resolve()):
            message = f"--code {root}: {entry.name} is a link to {target}, outside of the folder; "
            raise WrongInput(message + "put a copy there")


def _require_no_code(root: Path, folders: list[Path]) -> None:
    for folder in folders:
        for around, below, files in os.walk(folder):
            below[:] = [name for name in below if not _is_ignored(name)]
            code = [name for name in files if name.endswith(".py")]
            if code:
                found = Path(around, code[0]).relative_to(root)
                message = f"--code {root}: {found} lies in a folder, and a ConfigMap has none; "
                raise WrongInput(message + REMEDY)


def _is_ignored(name: str) -> bool:
    return name in IGNORED or name.startswith(".") or name.endswith(IGNORED_ENDINGS)


def _is_manifest(file: Path) -> bool:
    if file.suffix not in {".yaml", ".yml"} or file.stat().st_size > code_map.MOST_BYTES:
        return False
    return _MANIFEST.search(file.read_text(errors="replace")) is not None
