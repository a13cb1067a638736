"""A disk that takes only part of a record, or none."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from disttrain.telemetry import record_file
from disttrain.telemetry.record_file import FileName, RecordFile

RECORD_BYTES = 8


def head(missing: int) -> bytes:
    return b"head %3d" % missing


@contextmanager
def disk_full_after(nbytes: int) -> Iterator[None]:
    """No file may grow beyond: a write is short at first, then it fails."""
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))


@pytest.mark.parametrize("room", [RECORD_BYTES, RECORD_BYTES + 3])
def test_a_full_disk_leaves_out_records_and_halves_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, room: int
) -> None:
    file = RecordFile(tmp_path / "log.bin", head)
    with disk_full_after(RECORD_BYTES + room):
        for letter in (b"a", b"b", b"c"):
            file.append(letter * RECORD_BYTES)
    file.append(b"d" * RECORD_BYTES)
    assert (tmp_path / "log.bin").read_bytes() == b"head   2aaaaaaaadddddddd"
    assert file.missing == 2
    assert len(caplog.records) == 1
    file.close()


def test_half_a_record_that_is_found_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log.bin"
    path.write_bytes(b"head   0bbb")
    file = RecordFile(path, head)
    file.append(b"c" * RECORD_BYTES)
    file.close()
    assert path.read_bytes() == b"head   0cccccccc"


def test_after_the_end_nothing_is_written(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "log.bin", head)
    file.close()
    file.append(b"a" * RECORD_BYTES)
    file.close()
    assert (tmp_path / "log.bin").read_bytes() == b"head   0"


def test_a_file_that_had_no_room_at_all_begins_with_what_it_lacks(tmp_path: Path) -> None:
    with disk_full_after(0):
        file = RecordFile(tmp_path / "log.bin", head)
        file.append(b"a" * RECORD_BYTES)
    file.append(b"b" * RECORD_BYTES)
    file.close()
    assert (tmp_path / "log.bin").read_bytes() == b"head   1bbbbbbbb"


def test_names_say_whose_file_it_is() -> None:
    path = record_file.path_of(Path("ledger"), "shard-3", 12)
    assert path.name == "shard-3.i12.bin"
    assert record_file.parse_name(path) == FileName("shard-3", 3, 12)
    assert record_file.parse_name(Path("acknowledged-0.bin")) is None


def shortened(records: bytes) -> bytes:
    """Of "aaaaaaaabbbbbbbb" is left "(    ab)"."""
    letters = records.decode().replace("(", "").replace(")", "").replace(" ", "")
    return f"({''.join(dict.fromkeys(letters)):>6})".encode()


def a_file_of_three(path: Path) -> RecordFile:
    file = RecordFile(path, head)
    for letter in (b"a", b"b", b"c"):
        file.append(letter * RECORD_BYTES)
    return file


def test_what_comes_while_a_file_is_folded_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "log.bin"
    file = a_file_of_three(path)

    def meanwhile(records: bytes) -> bytes:
        file.append(b"d" * RECORD_BYTES)
        return shortened(records)

    file.fold(meanwhile)
    file.append(b"e" * RECORD_BYTES)

    assert path.read_bytes() == b"head   0(   abc)ddddddddeeeeeeee"
    assert list(tmp_path.iterdir()) == [path]
    file.close()


class Killed(BaseException):
    """The process is gone at this step."""


STEPS = ("unlink", "open", "write", "fsync", "pwrite", "rename", "fstat")


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_of_a_fold_the_file_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "log.bin"
    file = a_file_of_three(path)
    with monkeypatch.context() as killer:
        killer.setattr(os, step, _dies)
        with pytest.raises(Killed):
            file.fold(shortened)

    next_incarnation = RecordFile(tmp_path / "next.bin", head)
    next_incarnation.append(b"n" * RECORD_BYTES)
    next_incarnation.fold(shortened)

    kept = b"(   abc)" if step == "fstat" else b"aaaaaaaabbbbbbbbcccccccc"
    assert path.read_bytes() == b"head   0" + kept
    assert (tmp_path / "next.bin").read_bytes() == b"head   0(     n)"
    next_incarnation.close()


def _dies(*_: object, **__: object) -> Any:
    raise Killed


def test_a_disk_without_room_for_the_fold_leaves_the_file_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log.bin"
    file = a_file_of_three(path)
    with disk_full_after(5 * RECORD_BYTES):
        file.fold(lambda records: records * 9)
        file.append(b"d" * RECORD_BYTES)
    file.fold(shortened)

    assert path.read_bytes() == b"head   0(  abcd)"
    assert file.missing == 0
    assert len(caplog.records) == 1
    assert list(tmp_path.iterdir()) == [path]
    file.close()


def test_records_that_were_left_out_are_still_told_after_a_fold(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "log.bin", head)
    with disk_full_after(RECORD_BYTES):
        file.append(b"a" * RECORD_BYTES)
    file.append(b"b" * RECORD_BYTES)
    file.fold(shortened)
    assert (tmp_path / "log.bin").read_bytes() == b"head   1(     b)"
    file.close()


def test_a_folder_that_takes_nothing_any_more_ends_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log.bin"
    file = a_file_of_three(path)
    with monkeypatch.context() as folder:
        for change in ("unlink", "rename"):
            folder.setattr(os, change, _is_read_only)
        file.fold(shortened)
    file.append(b"d" * RECORD_BYTES)

    assert path.read_bytes() == b"head   0aaaaaaaabbbbbbbbccccccccdddddddd"
    assert len(caplog.records) == 1
    file.close()


def _is_read_only(*_: object, **__: object) -> Any:
    raise OSError(errno.EROFS, "the file system is read-only")
