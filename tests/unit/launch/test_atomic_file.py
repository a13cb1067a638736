"""Small files are replaced whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from disttrain.launch import atomic_file


def test_a_failed_replacement_leaves_nothing_beside_the_old_file(tmp_path: Path) -> None:
    old = tmp_path / "status"
    old.mkdir()
    with pytest.raises(IsADirectoryError):
        atomic_file.replace(old, b"new")
    assert list(tmp_path.iterdir()) == [old]


def test_only_its_owner_can_read_it_whoever_could_before(tmp_path: Path) -> None:
    path = tmp_path / "status"
    path.touch(0o644)
    atomic_file.replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_planted_beside_it_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / f".status.{os.getpid()}").symlink_to(victim)
    atomic_file.replace(tmp_path / "status", b"new")
    assert victim.read_bytes() == b"mine"
    assert not (tmp_path / "status").is_symlink()


def test_what_is_there_already_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "config"
    atomic_file.ensure(path, b"new")
    written = path.stat().st_ino
    atomic_file.ensure(path, b"new")
    assert path.stat().st_ino == written
    atomic_file.ensure(path, b"newer")
    assert path.read_bytes() == b"newer"
    with pytest.raises(FileNotFoundError):
        atomic_file.ensure(tmp_path / "away" / "config", b"new")


def test_a_kept_file_needs_no_more_room_once_it_was_written_twice(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    kept = atomic_file.KeptFile(path)
    for number in range(2):
        kept.replace(b"%d" % number)
    before = {each.stat().st_ino: each.stat().st_blocks for each in tmp_path.iterdir()}
    for number in (12345, 6):
        kept.replace(b"%d" % number)
        assert path.read_bytes().rstrip() == b"%d" % number
        assert {each.stat().st_ino: each.stat().st_blocks for each in tmp_path.iterdir()} == before
    kept.close()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", [10, 3344, 3584, 4096, 5000])
def test_a_kept_file_has_room_for_what_a_full_disk_adds_to_it(tmp_path: Path, size: int) -> None:
    """A warning has a path and a remedy, and may be thousands of bytes."""
    kept = atomic_file.KeptFile(tmp_path / "status.json")
    for _ in range(2):
        kept.replace(b"x" * size)
    before = {each.stat().st_ino: each.stat().st_blocks for each in tmp_path.iterdir()}
    for _ in range(2):
        kept.replace(b"x" * (size + 4000))
        assert {each.stat().st_ino: each.stat().st_blocks for each in tmp_path.iterdir()} == before


def test_a_kept_file_that_is_taken_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    kept = atomic_file.KeptFile(path)
    for _ in range(2):
        kept.replace(b"old")
    path.unlink()
    kept.replace(b"new")
    assert path.read_bytes().rstrip() == b"new"


def test_what_others_have_put_there_is_not_written_into(tmp_path: Path) -> None:
    path, spare, victim = (tmp_path / name for name in ("status", ".status.spare", "victim"))
    victim.write_bytes(b"mine")
    path.symlink_to(victim)
    spare.hardlink_to(victim)
    kept = atomic_file.KeptFile(path)
    for _ in range(3):
        kept.replace(b"new")
    assert victim.read_bytes() == b"mine"
    assert not path.is_symlink()
