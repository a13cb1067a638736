"""Sources that are files: blocks of bytes, lines of text, tar archives, Parquet.

They lie in a folder of the machine or in an object store. How many samples a file has, its size or
its index says (`TextBlocks`, `ParquetRows`), or each replica reads it once before it joins (lines,
archives).
"""

import os
import tarfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from disttrain.job import object_uri
from disttrain.task.sources import Sources

_LINES_PER_MARK = 256
"""An index of all lines would be larger than many texts."""
_READ_BYTES = 2**20
_ROWS_AT_A_TIME = 1024
"""Who wants few rows of a large group does not make Python's values of all of them."""
_EVERY_FILE = slice(None)


class Files(Sources):
    """The files of a place that have a suffix, by their names, one source each."""

    def __init__(
        self, place: str | os.PathLike[str], suffixes: Sequence[str], files: slice = _EVERY_FILE
    ) -> None:
        """`place`: a folder, a file, or a uri such as s3://bucket/prefix.

        `files`: which of them, such as slice(-1) for all but the last one, which is for tests.
        """
        self.place = os.fspath(place)
        self.suffixes = tuple(suffixes)
        self._chosen = files
        self._process = 0
        """Whose location it is."""
        self._location: tuple[Any, str] = None, ""

    def names(self) -> Sequence[str]:
        _, root = self._located()
        return [_name(path, root) for path in self.paths]

    @cached_property
    def paths(self) -> Sequence[str]:
        """Of the files, as the file system has them. Raises ValueError if there are none."""
        filesystem, root = self._located()
        everything = map(str, filesystem.find(root))
        found = [path for path in everything if path == root or path.endswith(self.suffixes)]
        chosen = sorted(found)[self._chosen]
        if not chosen:
            wanted = ", ".join(f"*{suffix}" for suffix in self.suffixes)
            message = (
                f"{self.place}: of its {len(found)} files {wanted} none is left to read; give a "
                "folder, a file or a uri with data"
            )
            raise ValueError(message)
        return chosen

    def size(self, source: int) -> int:
        """In bytes."""
        return int(self._located()[0].size(self.paths[source]))

    def open(self, source: int) -> IO[bytes]:
        opened: IO[bytes] = self._located()[0].open(self.paths[source], "rb")
        return opened

    def _located(self) -> tuple[Any, str]:
        """The file system and the place in it, anew in a forked process: no connection forks."""
        if self._process != os.getpid():
            self._location, self._process = self._locate(), os.getpid()
        return self._location

    def _locate(self) -> tuple[Any, str]:
        scheme = object_uri.scheme(self.place)
        others = os.environ.get(object_uri.OTHERS_VARIABLE, "").split(",")
        if scheme and scheme not in object_uri.OPENED and scheme not in others:
            message = (
                f"{self.place}: data is read by {scheme}:// only where "
                f"{object_uri.OTHERS_VARIABLE}={scheme} is set in the environment"
            )
            raise ValueError(message)
        # As for checkpoints: most jobs have no files of this kind, and all would start later.
        from fsspec.core import url_to_fs  # noqa: PLC0415

        filesystem, root = url_to_fs(self.place)
        return filesystem, str(root)


def _name(path: str, root: str) -> str:
    """The same wherever the folder lies."""
    whole = PurePosixPath(path)
    return whole.name if path == root else whole.relative_to(root).as_posix()


class TextBlocks(Files):
    """Blocks of `block_bytes` bytes, as uint8 tensors; what is left at a file's end is left out."""

    def __init__(
        self,
        place: str | os.PathLike[str],
        block_bytes: int,
        suffixes: Sequence[str] = (".txt",),
        files: slice = _EVERY_FILE,
    ) -> None:
        super().__init__(place, suffixes, files)
        if block_bytes < 1:
            message = f"block_bytes: must be at least 1, got {block_bytes}"
            raise ValueError(message)
        self.block_bytes = block_bytes

    def count(self, source: int) -> int:
        return self.size(source) // self.block_bytes

    def read(self, source: int, first: int) -> Iterator[Any]:
        with self.open(source) as file:
            file.seek(first * self.block_bytes)
            while len(block := file.read(self.block_bytes)) == self.block_bytes:
                yield torch.frombuffer(bytearray(block), dtype=torch.uint8)


class TextLines(Files):
    """Lines as bytes, without what ends them."""

    def __init__(
        self,
        place: str | os.PathLike[str],
        suffixes: Sequence[str] = (".txt",),
        files: slice = _EVERY_FILE,
    ) -> None:
        super().__init__(place, suffixes, files)
        self._marks: dict[int, tuple[int, NDArray[np.int64]]] = {}

    def count(self, source: int) -> int:
        return self._marked(source)[0]

    def read(self, source: int, first: int) -> Iterator[bytes]:
        lines, marks = self._marked(source)
        if first >= lines:
            return
        with self.open(source) as file:
            file.seek(int(marks[first // _LINES_PER_MARK]))
            for _ in range(first % _LINES_PER_MARK):
                file.readline()
            for line in file:
                yield line.removesuffix(b"\n").removesuffix(b"\r")

    def _marked(self, source: int) -> tuple[int, NDArray[np.int64]]:
        """How many lines there are, and where every _LINES_PER_MARK-th begins; reads once."""
        if source not in self._marks:
            with self.open(source) as file:
                self._marks[source] = _mark_lines(file)
        return self._marks[source]


def _mark_lines(file: IO[bytes]) -> tuple[int, NDArray[np.int64]]:
    marks = [np.zeros(1, np.int64)]
    ends, size, last = 0, 0, b"\n"
    while chunk := file.read(_READ_BYTES):
        begins = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + size + 1
        # The line after the n-th end is the one with number n.
        marks.append(begins[(_LINES_PER_MARK - 1 - ends) % _LINES_PER_MARK :: _LINES_PER_MARK])
        ends, size, last = ends + len(begins), size + len(chunk), chunk[-1:]
    return ends + (last != b"\n"), np.concatenate(marks)


class TarSamples(Files):
    """Samples of WebDataset's archives: neighbours whose names are alike up to the first dot.

    Each is a dict of bytes by what follows the dot, and its key under "__key__". Archives must not
    be compressed: nobody could begin in their middle.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        suffixes: Sequence[str] = (".tar",),
        files: slice = _EVERY_FILE,
    ) -> None:
        super().__init__(place, suffixes, files)
        self._begins: dict[int, NDArray[np.int64]] = {}

    def count(self, source: int) -> int:
        return len(self._indexed(source))

    def read(self, source: int, first: int) -> Iterator[dict[str, Any]]:
        begins = self._indexed(source)
        if first >= len(begins):
            return
        sample: dict[str, Any] = {}
        with self.open(source) as file:
            file.seek(int(begins[first]))
            with _archive(file, self.paths[source]) as archive:
                for member, key, field in _members(archive):
                    if sample and sample["__key__"] != key:
                        yield sample
                        sample = {}
                    content = archive.extractfile(member)
                    assert content is not None  # noqa: S101  It is a file.
                    sample |= {"__key__": key, field: content.read()}
        if sample:
            yield sample

    def _indexed(self, source: int) -> NDArray[np.int64]:
        """Where in the archive each sample begins. Reads the heads of all members once."""
        if source not in self._begins:
            begins: list[int] = []
            latest = None
            with self.open(source) as file, _archive(file, self.paths[source]) as archive:
                for member, key, _ in _members(archive):
                    if key != latest:
                        begins.append(member.offset)
                    latest = key
            self._begins[source] = np.array(begins, np.int64)
        return self._begins[source]


def _archive(file: IO[bytes], path: str) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=file, mode="r:")
    except tarfile.ReadError as error:
        message = f"{path} is no archive that can be read from the middle; use tar uncompressed"
        raise ValueError(message) from error


def _members(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, str, str]]:
    """Each file with its key and what follows that; the archive keeps none of them."""
    while (member := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]  # They would fill the memory.
        if member.isfile():
            folder, _, name = member.name.rpartition("/")
            key, _, field = name.partition(".")
            yield member, f"{folder}/{key}" if folder else key, field


class ParquetRows(Files):
    """Rows as dicts of Python values by column, of Parquet files; needs pyarrow."""

    def __init__(
        self,
        place: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        suffixes: Sequence[str] = (".parquet",),
        files: slice = _EVERY_FILE,
    ) -> None:
        """`columns`: those to read; None: all."""
        super().__init__(place, suffixes, files)
        self.columns = None if columns is None else list(columns)

    def count(self, source: int) -> int:
        with self.open(source) as file:
            return int(_parquet(file).metadata.num_rows)

    def read(self, source: int, first: int) -> Iterator[dict[str, Any]]:
        with self.open(source) as file:
            parquet = _parquet(file)
            for number in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(number).num_rows
                if first < rows:
                    group = parquet.read_row_group(number, columns=self.columns)
                    for begin in range(first, rows, _ROWS_AT_A_TIME):
                        yield from group.slice(begin, _ROWS_AT_A_TIME).to_pylist()
                first = max(0, first - rows)


def _parquet(file: IO[bytes]) -> Any:
    try:
        # Only this class needs it, and it is no dependency of ours.
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415
    except ImportError as error:
        message = f"ParquetRows needs pyarrow, add it to the environment of all replicas: {error}"
        raise ValueError(message) from error
    return ParquetFile(file)
