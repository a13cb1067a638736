"""A checkpoint folder, read and checked. Everything in it is distrusted."""

from dataclasses import dataclass
from pathlib import Path

from disttrain.checkpoint import manifest_text, names, part_file
from disttrain.checkpoint.errors import Corrupt, NoCheckpoint
from disttrain.checkpoint.manifest import FileEntry, Manifest
from disttrain.checkpoint.manifest_text import MalformedManifest


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: its folder and its manifest. Its files need not have been read."""

    path: Path
    manifest: Manifest


def read(path: Path) -> Checkpoint:
    """The checkpoint in a folder; its manifest is checked, its files are not (see `verify`).

    Raises NoCheckpoint when there is no such folder, Corrupt when it is half written or damaged.
    """
    if not path.is_dir():
        message = f"{path} is no folder of a checkpoint, such as checkpoints/00000001"
        raise NoCheckpoint(message)
    file = path / names.MANIFEST
    if not file.exists():
        raise Corrupt(path, f"it has no {names.MANIFEST}: it was not written to its end")
    try:
        manifest = manifest_text.parse(part_file.small_content(file, manifest_text.LIMIT_BYTES))
    except MalformedManifest as error:
        raise Corrupt(file, str(error)) from error
    if names.number(path.name) not in (None, manifest.number):
        raise Corrupt(file, f"it is of checkpoint {manifest.number}, not of {path.name}")
    return Checkpoint(path.absolute(), manifest)


def verified(path: Path) -> Checkpoint:
    """As `read`, after reading and hashing all of its files. Raises NoCheckpoint, Corrupt."""
    checkpoint = read(path)
    for entry in checkpoint.manifest.files:
        _check(path / entry.name, entry)
    return checkpoint


def _check(file: Path, entry: FileEntry) -> None:
    check_length(file, entry)
    found = part_file.digest_of(file)
    if found.hash != entry.hash:
        raise Corrupt(file, f"its hash is {found.hash}, the manifest says {entry.hash}")


def check_length(file: Path, entry: FileEntry) -> None:
    """Raise Corrupt unless the file is there and as long as its entry says."""
    try:
        found = file.lstat().st_size
    except OSError as error:
        raise Corrupt(file, f"it is missing ({error.strerror})") from error
    if found != entry.bytes:
        raise Corrupt(file, f"it has {found} bytes, the manifest says {entry.bytes}")
