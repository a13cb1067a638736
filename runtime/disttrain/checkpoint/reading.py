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
    content = part_file.small_content(file, manifest_text.LIMIT_BYTES)
    return Checkpoint(path.absolute(), parsed(content, file, names.number(path.name)))


def parsed(content: bytes, place: Path | str, number: int | None) -> Manifest:
    """The manifest at a place, of the checkpoint of this number, if known. Raises Corrupt."""
    try:
        manifest = manifest_text.parse(content)
    except MalformedManifest as error:
        raise Corrupt(place, str(error)) from error
    if number not in {None, manifest.number}:
        reason = f"it is of checkpoint {manifest.number}, not of {names.folder(number or 0)}"
        raise Corrupt(place, reason)
    return manifest


def verified(path: Path) -> Checkpoint:
    """As `read`, after reading and hashing all of its files. Raises NoCheckpoint, Corrupt."""
    checkpoint = read(path)
    for entry in checkpoint.manifest.files:
        check(path / entry.name, entry)
    return checkpoint


def check(file: Path, entry: FileEntry) -> None:
    """Raise Corrupt unless the file is what its entry says."""
    check_length(file, entry.bytes)
    found = part_file.digest_of(file)
    if found.hash != entry.hash:
        raise Corrupt(file, f"its hash is {found.hash}, {entry.hash} is expected")


def check_length(file: Path, expected_bytes: int | None) -> None:
    """Raise Corrupt unless the file is there and as long as it should be; None: of any length."""
    try:
        found = file.lstat().st_size
    except OSError as error:
        raise Corrupt(file, f"it is missing ({error.strerror})") from error
    if expected_bytes not in {None, found}:
        raise Corrupt(file, f"it has {found} bytes, {expected_bytes} are expected")
