"""Reading ranges of vectors from a checkpoint of any number of shards."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from disttrain.checkpoint import names, shard_file
from disttrain.checkpoint.manifest import Manifest
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.shard_file import ShardFile
from disttrain.parameter_server.layout import ELEMENT_TYPES, Range
from disttrain.transport.header import ELEMENT_BYTES, Vector


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePart:
    """A part of the wanted range that lies in one shard's file."""

    shard: int
    first: int
    """First element within the file's tensor."""
    offset: int
    """First element within the wanted range."""
    count: int


def parts(manifest: Manifest, vector: Vector, wanted: Range) -> tuple[FilePart, ...]:
    """Where the elements of a range lie, in their order. Pure.

    ValueError if the checkpoint does not hold all of it.
    """
    found = sorted(_parts(manifest, vector, wanted), key=lambda part: part.offset)
    if sum(part.count for part in found) != wanted.count:
        message = f"the checkpoint does not hold {vector.name} [{wanted.first}, {wanted.end})"
        raise ValueError(message)
    return tuple(found)


def _parts(manifest: Manifest, vector: Vector, wanted: Range) -> Iterator[FilePart]:
    for shard in manifest.shards:
        for held in shard.ranges:
            first, end = max(held.first, wanted.first), min(held.end, wanted.end)
            if held.vector is vector and held.partition == 0 and first < end:
                yield FilePart(
                    shard=shard.index,
                    first=first - held.first,
                    offset=first - wanted.first,
                    count=end - first,
                )


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

    def read(self, vector: Vector, wanted: Range, into: memoryview, state: str = "") -> None:
        """Fill `into` with a range of a vector's values, or of an optimizer state of this kind.

        Raises Corrupt when a file does not hold what the manifest says.
        """
        width = ELEMENT_BYTES[ELEMENT_TYPES[vector]]
        name = names.state(vector, state) if state else names.values(vector)
        target = into.cast("B")
        for part in parts(self.manifest, vector, wanted):
            end = part.offset + part.count
            place = target[part.offset * width : end * width]
            self.file(part.shard).read(name, part.first, place)

    def file(self, shard: int) -> ShardFile:
        """The file of one shard, open until this is left."""
        if shard not in self._files:
            path = self._folder / self.manifest.shards[shard].file.name
            self._files[shard] = self._open.enter_context(shard_file.opened(path))
        return self._files[shard]
