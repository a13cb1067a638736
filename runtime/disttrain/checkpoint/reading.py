"""A checkpoint folder, read and checked, and its vectors by range. All in it is distrusted."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from disttrain.checkpoint import manifest_text, names, part_file
from disttrain.checkpoint.element_types import FILE_TYPES
from disttrain.checkpoint.errors import Corrupt, NoCheckpoint
from disttrain.checkpoint.manifest import FileEntry, Manifest, VectorEntry
from disttrain.checkpoint.manifest_text import MalformedManifest
from disttrain.checkpoint.part_file import PartFile
from disttrain.checkpoint.tensor_file import Tensor
from disttrain.state.placement import HeldPart, Range
from disttrain.state.vector import PARAMETERS, Vector


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


def parts(manifest: Manifest, vector: Vector, wanted: Range) -> tuple[HeldPart, ...]:
    """Where the elements of a range lie, in their order. Pure.

    ValueError if the checkpoint has no such elements.
    """
    # What a strategy keeps without telling the coordinator lies as what it trains.
    known = vector if vector in manifest.placement.vectors else vector.beside(PARAMETERS)
    return manifest.placement.parts(known, wanted)


class Restore:
    """An open checkpoint; a context manager. One thread.

    Hashes are not checked here: see `stores.verify`.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.manifest = checkpoint.manifest
        self._folder = checkpoint.path
        self._files: dict[int, PartFile] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def has(self, vector: Vector, wanted: Range) -> bool:
        """Whether any of it is here; if not, it was not kept then. Raises Corrupt."""
        for part in parts(self.manifest, vector, wanted):
            with self._holding(part.holder, vector) as (file, tensor):
                if tensor in file.tensors:
                    return True
        return False

    def read(self, vector: Vector, wanted: Range, into: memoryview) -> None:
        """Fill `into` with a range of a vector. Raises Corrupt when a file lacks some of it."""
        target = into.cast("B")
        for part in parts(self.manifest, vector, wanted):
            first, end = (
                place * vector.element_bytes for place in (part.offset, part.offset + part.count)
            )
            with self._holding(part.holder, vector) as (file, tensor):
                file.read(tensor, part.first, target[first:end])

    def check_files(self) -> None:
        """Open all files, so that everything the manifest promises is there. Raises Corrupt."""
        for entry in self.manifest.holders:
            self.file(entry.index)
            for vector in entry.vectors:
                self.vector(vector)

    def vector(self, entry: VectorEntry) -> Tensor:
        """A vector that is in a file of its own. Raises Corrupt."""
        path = self._folder / entry.file.name
        with part_file.opened(path) as file:
            found = file.tensors.get(names.VECTOR)
            if found is None:
                raise Corrupt(path, f"it has no tensor {names.VECTOR!r}")
            return found

    def file(self, holder: int) -> PartFile:
        """The file of one holder, open until this is left. Raises Corrupt."""
        if holder not in self._files:
            path = self._folder / self.manifest.holders[holder].file.name
            file = self._open.enter_context(part_file.opened(path))
            _check_tensors(path, file, self.manifest.placement.ranges(holder))
            self._files[holder] = file
        return self._files[holder]

    @contextmanager
    def _holding(self, holder: int, vector: Vector) -> Iterator[tuple[PartFile, str]]:
        """Where a holder's range of a vector lies, and what the tensor is called there.

        Files of vectors do not stay open: there may be more than a process may have.
        """
        for own in self.manifest.holders[holder].vectors:
            if own.vector == vector:
                with part_file.opened(self._folder / own.file.name) as file:
                    yield file, names.VECTOR
                return
        file = self.file(holder)
        yield file, file.name_of(vector)


def _check_tensors(path: Path, file: PartFile, ranges: Mapping[Vector, Range]) -> None:
    for vector, held in ranges.items():
        if not vector.is_of_a_model:
            continue
        tensor = file.tensors.get(file.name_of(vector))
        if tensor is None:
            if not held.count:
                continue
            raise Corrupt(path, f"it has no tensor {str(vector)!r}")
        kind = FILE_TYPES[vector.element_type]
        if (tensor.type, tensor.elements) != (kind, held.count):
            found = f"{tensor.elements} elements of type {tensor.type}"
            raise Corrupt(path, f"{vector} has {found}, the manifest says {held.count} of {kind}")
