"""Reading ranges of vectors from a checkpoint, whoever held them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from disttrain.checkpoint import names, part_file
from disttrain.checkpoint.element_types import FILE_TYPES
from disttrain.checkpoint.errors import Corrupt
from disttrain.checkpoint.manifest import Manifest, VectorEntry
from disttrain.checkpoint.part_file import PartFile
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.tensor_file import Tensor
from disttrain.state.placement import HeldPart, Range
from disttrain.state.vector import PARAMETERS, Vector


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
