"""The folder with a task's code, and the ConfigMap that is made of it."""

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from disttrain.cluster.errors import WrongInput
from disttrain.cluster.interface import Object
from disttrain.job.spec import KIND

MOST_BYTES: Final = 2**20
"""What Kubernetes allows in a ConfigMap."""
BIGGEST_NAMED: Final = 5
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
REMEDY: Final = (
    "bake the code into an image instead (FROM the runtime image, COPY it to /task) and name it in "
    "spec.image"
)
IGNORED: Final = frozenset({"__pycache__", "node_modules", "runs", "venv", "build", "dist"})
"""Folders of caches and results. Whatever begins with a dot is ignored, too."""
IGNORED_ENDINGS: Final = (".pyc", ".pyo", ".egg-info", ".md", "~")
"""Of caches and of what only people read."""
_MANIFEST: Final = re.compile(rf"^kind: *{KIND} *$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Code:
    """What was found in a folder."""

    files: Mapping[str, bytes]
    """Contents by name."""
    folders: tuple[str, ...]
    """Folders in it that were left out: a ConfigMap is flat. They hold no Python files."""


def read(folder: Path) -> Code:
    """The files of a folder, without manifests of jobs. Raises WrongInput if code is missing."""
    try:
        return _read(folder)
    except OSError as error:
        raise WrongInput(
            f"--code {folder}: must be a folder that can be read: {error.strerror}"
        ) from error


def _read(folder: Path) -> Code:
    wanted = [entry for entry in sorted(folder.iterdir()) if not _is_ignored(entry.name)]
    folders = [entry for entry in wanted if entry.is_dir()]
    _require_no_code(folder, folders)
    _require_no_links_outside(folder, wanted)
    files = [entry for entry in wanted if entry.is_file() and not _is_manifest(entry)]
    # Before they are read: a folder may hold a data set.
    require_fitting({file.name: file.stat().st_size for file in files}, str(folder))
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
    if file.suffix not in {".yaml", ".yml"} or file.stat().st_size > MOST_BYTES:
        return False
    return _MANIFEST.search(file.read_text(errors="replace")) is not None


def config_map(name: str, files: Mapping[str, bytes]) -> Object:
    texts, others = {}, {}
    for file, content in files.items():
        try:
            texts[file] = content.decode()
        except UnicodeDecodeError:
            others[file] = base64.b64encode(content).decode()
    parts = {"data": texts, "binaryData": others}
    metadata = {"name": name, "labels": {"app.kubernetes.io/managed-by": "disttrain-cli"}}
    kept = {part: content for part, content in parts.items() if content}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **kept}


def require_fitting(sizes: Mapping[str, int], source: str) -> None:
    """Raise WrongInput unless files of these names and bytes fit; it names those in the way."""
    if not sizes:
        raise WrongInput(f"--code {source} holds no files that could be packed")
    refused = sorted(file for file in sizes if not _KEY.fullmatch(file) or file in {".", ".."})
    if refused:
        raise WrongInput(
            f"--code {source}: a ConfigMap cannot hold a file named {refused[0]!r}; "
            "names have letters, digits, '-', '_' and '.' only"
        )
    if sum(sizes.values()) > MOST_BYTES:
        raise WrongInput(_too_much(sizes, source))


def _too_much(sizes: Mapping[str, int], source: str) -> str:
    falling = sorted(sizes.items(), key=lambda each: (-each[1], each[0]))
    biggest = ", ".join(f"{file} ({size:,} bytes)" for file, size in falling[:BIGGEST_NAMED])
    return (
        f"--code {source} holds {sum(sizes.values()):,} bytes in {len(sizes)} files, and a "
        f"ConfigMap takes {MOST_BYTES:,}; the biggest: {biggest}. Move what the task does not "
        f"need out of the folder, or {REMEDY}"
    )
