"""A disk that takes only part of a record, or none."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from disttrain.telemetry.record_file import RecordFile

RECORD_BYTES = 8


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
    file = RecordFile(tmp_path / "log.bin", RECORD_BYTES)
    with disk_full_after(room):
        for letter in (b"a", b"b", b"c"):
            file.append(letter * RECORD_BYTES)
    file.append(b"d" * RECORD_BYTES)
    assert (tmp_path / "log.bin").read_bytes() == b"aaaaaaaadddddddd"
    assert file.missing == 2
    assert len(caplog.records) == 1
    file.close()


def test_half_a_record_that_is_found_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log.bin"
    path.write_bytes(b"aaaaaaaabbb")
    file = RecordFile(path, RECORD_BYTES)
    file.append(b"c" * RECORD_BYTES)
    file.close()
    assert path.read_bytes() == b"aaaaaaaacccccccc"


def test_after_the_end_nothing_is_written(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "log.bin", RECORD_BYTES)
    file.close()
    file.append(b"a" * RECORD_BYTES)
    file.close()
    assert (tmp_path / "log.bin").read_bytes() == b""
