"""A disk that takes only part of a record, or none."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
