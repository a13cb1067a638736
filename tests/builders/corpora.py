"""Numbers as files that are read in order: lines of text, archives of WebDataset, Parquet."""

import io
import tarfile
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import pyarrow
from pyarrow import parquet

ROWS_OF_A_GROUP = 50
FORMATS = ("text", "tar", "parquet")


def files(format_: str, counts: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file: together they have the numbers from 0 on, in order."""
    for part, (begin, end) in enumerate(pairwise([0, *accumulate(counts)])):
        suffix = "txt" if format_ == "text" else format_
        yield f"part-{part}.{suffix}", _WRITE[format_](range(begin, end))


def write(folder: Path, format_: str, counts: Sequence[int]) -> None:
    folder.mkdir()
    for name, content in files(format_, counts):
        (folder / name).write_bytes(content)


def _text(numbers: Sequence[int]) -> bytes:
    return b"".join(b"%d\n" % number for number in numbers)


def _tar(numbers: Sequence[int]) -> bytes:
    """A sample has a second member, so that samples are not members."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for number in numbers:
            for field in ("number", "other.txt"):
                content = str(number).encode()
                member = tarfile.TarInfo(f"{number:06}.{field}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return written.getvalue()


def _parquet(numbers: Sequence[int]) -> bytes:
    written = io.BytesIO()
    table = pyarrow.table({"number": pyarrow.array(numbers, pyarrow.int64())})
    parquet.write_table(table, written, row_group_size=ROWS_OF_A_GROUP)
    return written.getvalue()


_WRITE: dict[str, Callable[[Sequence[int]], bytes]] = {
    "text": _text,
    "tar": _tar,
    "parquet": _parquet,
}
