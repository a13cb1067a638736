"""Reading ranges of vectors from a checkpoint of any number of shards."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from disttrain.checkpoint import names, shard_file
from disttrain.checkpoint.element_types import FILE_TYPES, VECTOR_TYPES
from disttrain.checkpoint.errors import Corrupt
from disttrain.checkpoint.manifest import Manifest, ShardEntry, VectorEntry, VectorRange
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.shard_file import ShardFile
from disttrain.checkpoint.tensor_file import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePart:
    """A part of the wanted range that lies in one shard's file."""

    shard: int
    first: int
    """First element within the file's tensor."""
    offset: int
    """First element within the wanted range."""
    count: int


def parts(manifest: Manifest, wanted: VectorRange) -> tuple[FilePart, ...]:
    """Where the elements of a range lie, in their order. Pure.

    ValueError if the model has no such elements.
    """
    found = sorted(_parts(manifest, wanted), key=lambda part: part.offset)
    if sum(part.count for part in found) != wanted.end - wanted.first:
        message = (
            f"checkpoint {manifest.number} holds no "
            f"{wanted.vector.name} [{wanted.first}, {wanted.end})"
        )
        raise ValueError(message)
    return tuple(found)


def _parts(manifest: Manifest, wanted: VectorRange) -> Iterator[FilePart]:
    for shard in manifest.shards:
        for held in shard.ranges:
            first, end = max(held.first, wanted.first), min(held.end, wanted.end)
            if _same_vector(held, wanted) and first < end:
                yield FilePart(
                    shard=shard.index,
                    first=first - held.first,
                    offset=first - wanted.first,
                    count=end - first,
                )


def _same_vector(one: VectorRange, other: VectorRange) -> bool:
    return (one.partition, one.vector) == (other.partition, other.vector)


class Restore:
    """An open checkpoint; a context manager. One thread.

    Hashes are not checked here: see `store.verify`.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.manifest = checkpoint.manifest
        self._folder = checkpoint.path
        self._files: dict[int, ShardFile] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Files are opened when they are needed."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all files."""
        self._open.close()

    def read(self, wanted: VectorRange, into: memoryview, state: str = "") -> None:
        """Fill `into` with a range of a vector's values, or of an optimizer state of this kind.

        Raises Corrupt when a file does not hold what the manifest says.
        """
        width = VECTOR_TYPES[wanted.vector].itemsize
        name = names.state(wanted.vector, state) if state else names.values(wanted.vector)
        target = into.cast("B")
        for part in parts(self.manifest, wanted):
            end = part.offset + part.count
            place = target[part.offset * width : end * width]
            with self._holding(part.shard, name) as (file, tensor):
                file.read(tensor, part.first, place)

    def check_files(self) -> None:
        """Open all files, so that everything the manifest promises is there. Raises Corrupt."""
        for entry in self.manifest.shards:
            self.file(entry.index)
            for vector in entry.vectors:
                self.vector(vector)

    def vector(self, entry: VectorEntry) -> Tensor:
        """A vector that is in a file of its own. Raises Corrupt."""
        path = self._folder / entry.file.name
        with shard_file.opened(path) as file:
            found = file.tensors.get(names.VECTOR)
            if found is None:
                raise Corrupt(path, f"it has no tensor {names.VECTOR!r}")
            return found

    def file(self, shard: int) -> ShardFile:
        """The file of one shard, open until this is left. Raises Corrupt."""
        if shard not in self._files:
            entry = self.manifest.shards[shard]
            path = self._folder / entry.file.name
            file = self._open.enter_context(shard_file.opened(path))
            _check_tensors(path, file, entry)
            self._files[shard] = file
        return self._files[shard]

    @contextmanager
    def _holding(self, shard: int, name: str) -> Iterator[tuple[ShardFile, str]]:
        """Where a tensor of a shard lies, and what it is called there.

        Files of vectors do not stay open: there may be more than a process may have.
        """
        for vector in self.manifest.shards[shard].vectors:
            if vector.tensor == name:
                with shard_file.opened(self._folder / vector.file.name) as file:
                    yield file, names.VECTOR
                return
        yield self.file(shard), name


def _check_tensors(path: Path, file: ShardFile, entry: ShardEntry) -> None:
    for held in entry.ranges:
        name, count = names.values(held.vector), held.end - held.first
        tensor = file.tensors.get(name)
        if tensor is None:
            raise Corrupt(path, f"it has no tensor {name!r}")
        kind = FILE_TYPES[VECTOR_TYPES[held.vector]]
        if (tensor.type, tensor.elements) != (kind, count):
            found = f"{tensor.elements} elements of type {tensor.type}"
            raise Corrupt(path, f"{name} has {found}, the manifest says {count} of {kind}")
