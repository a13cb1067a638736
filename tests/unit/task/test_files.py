"""Files as sources: any sample can be begun with, and nothing is read twice or left out."""

import io
import sys
import tarfile
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from disttrain import ParquetRows, Sources, TarSamples, TextBlocks, TextLines
from disttrain.task import files
from disttrain.task.sources import SourcesReader


def from_everywhere(sources: Sources) -> list[list[Any]]:
    """The samples of each source, which come out the same wherever one begins."""
    found = []
    for source in range(len(sources.names())):
        whole = list(sources.read(source, 0))
        assert sources.count(source) == len(whole)
        for first in range(len(whole) + 1):
            assert repr(list(sources.read(source, first))) == repr(whole[first:])
        found.append(whole)
    return found


def test_blocks_of_bytes_leave_out_the_rest_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"01234567")
    (tmp_path / "a.txt").write_bytes(b"xy")
    (tmp_path / "c.md").write_bytes(b"not read")
    blocks = TextBlocks(tmp_path, 3)
    assert blocks.names() == ["a.txt", "b.txt"]
    none, two = from_everywhere(blocks)
    assert none == []
    assert torch.stack(two).tolist() == [list(b"012"), list(b"345")]


@settings(deadline=None)
@given(text=st.binary(max_size=60).map(lambda text: text.replace(b"\x07", b"\n")))
def test_lines_are_those_of_a_plain_loop(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    path = tmp_path_factory.mktemp("lines") / "one.txt"
    path.write_bytes(text)
    (lines,) = from_everywhere(TextLines(path))
    parts = text.split(b"\n")
    wanted = parts[:-1] if not parts[-1] else parts
    assert lines == [part.removesuffix(b"\r") for part in wanted]


def test_marks_of_lines_are_found_over_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_READ_BYTES", 7)
    monkeypatch.setattr(files, "_LINES_PER_MARK", 4)
    path = tmp_path / "one.txt"
    path.write_text("\n".join(str(number) * (number % 5) for number in range(50)))
    (lines,) = from_everywhere(TextLines(path))
    assert lines == [(str(number) * (number % 5)).encode() for number in range(50)]


def an_archive(path: Path, names: list[str], mode: str = "w") -> None:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for number, name in enumerate(names):
            content = f"{number}".encode() * (number * 300)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("format_", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_samples_of_an_archive_are_grouped_by_key(
    format_: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tarfile, "DEFAULT_FORMAT", format_)
    monkeypatch.setattr(tarfile.TarFile, "format", format_)
    long = "folder/" + "n" * 150
    an_archive(tmp_path / "a.tar", ["0.png", "0.cls", f"{long}.png", f"{long}.seg.png", "2.cls"])
    an_archive(tmp_path / "empty.tar", [])
    samples, none = from_everywhere(TarSamples(tmp_path))
    assert none == []
    assert [sample.pop("__key__") for sample in samples] == ["0", long, "2"]
    assert [list(sample) for sample in samples] == [["png", "cls"], ["png", "seg.png"], ["cls"]]
    assert samples[1]["seg.png"] == b"3" * 900


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    an_archive(tmp_path / "a.tar", ["0.png"], "w:gz")
    with pytest.raises(ValueError, match=r"a\.tar is no archive .* use tar uncompressed"):
        TarSamples(tmp_path).count(0)


def test_rows_of_parquet_begin_in_any_row_group(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": [f"t{n}" for n in range(11)], "label": list(range(11))})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    (rows,) = from_everywhere(ParquetRows(tmp_path))
    assert rows == [{"text": f"t{n}", "label": n} for n in range(11)]
    (labels,) = from_everywhere(ParquetRows(tmp_path, columns=["label"]))
    assert labels == [{"label": n} for n in range(11)]


def test_parquet_without_its_library_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ValueError, match="ParquetRows needs pyarrow"):
        ParquetRows(tmp_path).count(0)


def test_files_lie_in_an_object_store_too() -> None:
    store = fsspec.filesystem("memory")
    store.pipe({"/corpus/one.txt": b"1\n2\n", "/corpus/more/two.txt": b"3\n"})
    try:
        lines = TextLines("memory://corpus")
        assert lines.names() == ["more/two.txt", "one.txt"]
        assert SourcesReader(lines, "")[2] == b"2"
    finally:
        store.rm("/corpus", recursive=True)


def test_the_last_file_can_be_kept_for_tests(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("x")
    assert TextLines(tmp_path, files=slice(-1)).names() == ["a.txt", "b.txt"]
    assert TextLines(tmp_path, files=slice(-1, None)).names() == ["c.txt"]


def test_the_identity_is_the_same_wherever_the_folder_lies(tmp_path: Path) -> None:
    digests = set()
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "a.txt").write_text("1\n2")
        digests.add(SourcesReader(TextLines(tmp_path / place), "").digest)
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (lambda folder: TextLines(folder).names(), r"of its 0 files \*\.txt none is left to read"),
        (lambda folder: TextBlocks(folder, 0), "block_bytes: must be at least 1, got 0"),
        (lambda _: TextLines("http://a/b").names(), "only where DISTTRAIN_OBJECT_STORES=http"),
    ],
)
def test_what_cannot_be_read_is_a_message(sources: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        sources(tmp_path)
