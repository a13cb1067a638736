"""The file of one holder: flat tensors, streamed to disk and read by ranges.

A vector that stays as it is for long has a file of its own, which is named by its hash, written
once, and shared by later checkpoints.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from disttrain.checkpoint import names, tensor_file
from disttrain.checkpoint.digest import Digest
from disttrain.checkpoint.durable import DurableFile
from disttrain.checkpoint.errors import Corrupt
from disttrain.checkpoint.manifest import FileEntry
from disttrain.checkpoint.tensor_file import Header, MalformedHeader, Tensor
from disttrain.state.vector import Vector

_READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """A tensor to write: its form, and its bytes in pieces of any size.

    Pieces are taken one at a time, in the writer's thread, and not kept.
    """

    tensor: Tensor
    pieces: Iterable[bytes | memoryview]


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A file that is on disk."""

    bytes: int
    hash: str
    """As the manifest writes it."""


def write(path: Path, contents: Sequence[Content], metadata: Mapping[str, str]) -> Written:
    """Write a file: streamed, hashed on the way, synced, then named, its folder synced.

    Memory stays flat: one piece at a time. Any thread. Raises NotWritten when the system refuses;
    whatever `pieces` raises ends the writing and leaves no file. ValueError: a tensor's pieces
    have another length than it.
    """
    header = tensor_file.encode([content.tensor for content in contents], metadata)
    size = len(header) + sum(content.tensor.nbytes for content in contents)
    with DurableFile(path, size) as file:
        return _stream_all(file, contents, metadata)


def write_vector(folder: Path, draft: str, content: Content) -> FileEntry:
    """Write a vector; its tensor is called `names.VECTOR`. Raises NotWritten.

    `draft`: what the file is called until its hash is known; others write into the folder, too.
    """
    with DurableFile(folder / draft, content.tensor.nbytes) as file:
        written = _stream_all(file, [content], {})
        file.path = folder / names.vector_file(written.hash)
    return FileEntry(name=file.path.name, bytes=written.bytes, hash=written.hash)


def _stream_all(
    file: DurableFile, contents: Sequence[Content], metadata: Mapping[str, str]
) -> Written:
    digest = Digest()
    header = tensor_file.encode([content.tensor for content in contents], metadata)
    written = len(header)
    file.write(header)
    digest.update(header)
    for content in contents:
        written += _stream(content, file, digest)
    return Written(bytes=written, hash=digest.text())


def _stream(content: Content, file: DurableFile, digest: Digest) -> int:
    written = 0
    for piece in content.pieces:
        view = memoryview(piece).cast("B")
        file.write(view)
        digest.update(view)
        written += view.nbytes
    if written != content.tensor.nbytes:
        message = (
            f"tensor {content.tensor.name!r} has {content.tensor.nbytes} bytes, "
            f"but its pieces had {written}"
        )
        raise ValueError(message)
    return written


class PartFile:
    """A file that is open for reading; get one from `opened`. One thread at a time."""

    def __init__(self, path: Path, descriptor: int, header: Header) -> None:
        self.path = path
        self.metadata = header.metadata
        self._descriptor = descriptor
        self._starts: dict[str, int] = {}
        self.tensors: dict[str, Tensor] = {}
        start = header.data_start
        for tensor in header.tensors:
            self._starts[tensor.name], self.tensors[tensor.name] = start, tensor
            start += tensor.nbytes
        found = {name: names.vector_of(name) for name in self.tensors}
        self._vectors = {vector: name for name, vector in found.items() if vector is not None}

    def name_of(self, vector: Vector) -> str:
        """The tensor with the values of a vector; the name that it should have if there is none."""
        return self._vectors.get(vector, str(vector))

    def read(self, name: str, first: int, into: memoryview) -> None:
        """Fill `into` with the tensor's bytes from element `first` on. Raises Corrupt."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise Corrupt(self.path, f"it has no tensor {name!r}")
        offset = first * tensor_file.TYPE_BYTES[tensor.type]
        target = into.cast("B")
        if offset + target.nbytes > tensor.nbytes:
            end = offset + target.nbytes
            raise Corrupt(self.path, f"{name} has {tensor.nbytes} bytes, {end} are wanted")
        _fill(self.path, self._descriptor, self._starts[name] + offset, target)

    def read_all(self, name: str) -> bytes:
        """All bytes of a small tensor, such as a table. Raises Corrupt."""
        content = bytearray(self.tensors[name].nbytes if name in self.tensors else 0)
        self.read(name, 0, memoryview(content))
        return bytes(content)


@contextmanager
def opened(path: Path) -> Iterator[PartFile]:
    """A file for reading by ranges; its header is checked, its data are not (see `digest_of`).

    Raises Corrupt.
    """
    with _regular_file(path) as (descriptor, size):
        yield PartFile(path, descriptor, _header(path, descriptor, size))


def digest_of(path: Path) -> Written:
    """Length and hash of a file as it is on disk. Raises Corrupt when it cannot be read."""
    digest = Digest()
    buffer = memoryview(bytearray(_READ_BYTES))
    with _regular_file(path) as (descriptor, size):
        for offset in range(0, size, _READ_BYTES):
            part = buffer[: min(_READ_BYTES, size - offset)]
            _fill(path, descriptor, offset, part)
            digest.update(part)
    return Written(bytes=size, hash=digest.text())


def small_content(path: Path, limit_bytes: int) -> bytes:
    """All of a small file. Raises Corrupt when it is longer than the limit or cannot be read."""
    with _regular_file(path) as (descriptor, size):
        if size > limit_bytes:
            raise Corrupt(path, f"it has {size} bytes; at most {limit_bytes} are read")
        return _bytes(path, descriptor, 0, size)


@contextmanager
def _regular_file(path: Path) -> Iterator[tuple[int, int]]:
    # Neither a link nor a pipe is followed or waited for, whatever somebody put into the folder.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise Corrupt(path, f"it cannot be read ({error.strerror})") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Corrupt(path, "it is no regular file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def _header(path: Path, descriptor: int, size: int) -> Header:
    try:
        prefix = _bytes(path, descriptor, 0, min(8, size))
        text = _bytes(path, descriptor, 8, tensor_file.text_bytes(prefix, size))
        header = tensor_file.parse(text)
    except MalformedHeader as error:
        raise Corrupt(path, str(error)) from error
    if header.file_bytes != size:
        raise Corrupt(path, f"it has {size} bytes, its header says {header.file_bytes}")
    return header


def _bytes(path: Path, descriptor: int, offset: int, count: int) -> bytes:
    content = bytearray(count)
    _fill(path, descriptor, offset, memoryview(content))
    return bytes(content)


def _fill(path: Path, descriptor: int, offset: int, target: memoryview) -> None:
    done = 0
    while done < target.nbytes:
        try:
            count = os.preadv(descriptor, [target[done:]], offset + done)
        except OSError as error:
            raise Corrupt(path, f"it cannot be read ({error.strerror})") from error
        if count == 0:
            raise Corrupt(path, f"it ends after {offset + done} bytes")
        done += count
