"""Blobs in a folder. What they share with objects is in the contracts of stores and journals."""

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from disttrain.checkpoint.blobs import FolderBlobs
from disttrain.checkpoint.errors import AlreadyThere, Corrupt, NotWritten, StoreAway


@pytest.fixture(name="blobs")
def _blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "not" / "there")


def test_what_is_written_is_listed_and_read_until_it_is_deleted(blobs: FolderBlobs) -> None:
    assert blobs.sizes("a") == {}
    blobs.write("a/b", b"old")
    blobs.write("a/b", b"content")
    blobs.write("a/c/d", b"")
    assert blobs.sizes("a") == {"a/b": 7, "a/c/d": 0}
    assert blobs.read_all({"a/b": 7}) == {"a/b": b"content"}
    assert blobs.delete(["a/b", "a/none"]) == frozenset()
    assert set(blobs.sizes("a")) == {"a/c/d"}
    with pytest.raises(Corrupt):
        blobs.read("a/b", 10)


def test_who_comes_second_creates_nothing(blobs: FolderBlobs) -> None:
    blobs.create("a/b", b"first")
    for content in (b"first", b"second"):
        with pytest.raises(AlreadyThere, match="a/b is there already"):
            blobs.create("a/b", content)
    assert blobs.holds("a/b", b"first")
    assert not blobs.holds("a/b", b"second")


@pytest.mark.parametrize("has_links", [True, False])
def test_a_crash_leaves_no_half_of_what_is_created(
    blobs: FolderBlobs, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if not has_links:
        monkeypatch.setattr(os, "link", full)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(NotWritten):
            blobs.create("a/b", b"content")
    assert list((blobs.folder / "a").iterdir()) == []

    blobs.create("a/b", b"content")
    with pytest.raises(AlreadyThere):
        blobs.create("a/b", b"another")
    assert [path.name for path in (blobs.folder / "a").iterdir()] == ["b"]
    assert blobs.holds("a/b", b"content")


def test_what_is_being_written_and_a_file_of_the_folders_name_are_not_listed(
    blobs: FolderBlobs,
) -> None:
    blobs.write("a/.b.partial", b"half")
    blobs.write("c", b"whole")
    assert blobs.sizes("a") == blobs.sizes("c") == {}


def test_a_link_is_no_blob(blobs: FolderBlobs, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    blobs.write("a/b", b"content")
    (blobs.folder / "a" / "c").symlink_to(tmp_path / "secret")
    assert set(blobs.sizes("a")) == {"a/b"}
    with pytest.raises(Corrupt):
        blobs.read("a/c", 10)


def test_a_file_becomes_a_blob_and_comes_back(blobs: FolderBlobs, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    blobs.upload(file, "a/b")
    assert not file.exists()
    blobs.download("a/b", file, 7)
    assert file.read_bytes() == b"content"
    with pytest.raises(Corrupt, match="it has 7 bytes, 8 are expected"):
        blobs.download("a/b", file, 8)


def test_its_own_file_stays_where_it_is(blobs: FolderBlobs) -> None:
    blobs.write("a/b", b"content")
    own = blobs.folder / "a" / "b"
    blobs.upload(own, "a/b")
    blobs.download("a/b", own)
    assert own.read_bytes() == b"content"


def test_where_nothing_can_be_written_the_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    blobs = FolderBlobs(tmp_path / "file")
    for put in (blobs.write, blobs.create):
        with pytest.raises(NotWritten, match="file"):
            put("a/b", b"content")
    with pytest.raises(NotWritten, match="File name too long"):
        FolderBlobs(tmp_path).write(f"{'a' * 300}/b", b"content")


def test_a_place_that_fails_is_away(
    blobs: FolderBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.write("a/b", b"content")
    with pytest.raises(StoreAway, match="a/b could not be read"):
        blobs.download("a/b", tmp_path / "none" / "file")

    def stale(path: Path) -> NoReturn:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    monkeypatch.setattr(Path, "lstat", stale)
    with pytest.raises(StoreAway, match="a/b could not be read: Stale file handle"):
        blobs.sizes("a")
