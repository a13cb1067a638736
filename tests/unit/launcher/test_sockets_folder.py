"""The folder of the sockets: private, short, and removed by the next run when nobody keeps it."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from disttrain.launcher import sockets_folder
from disttrain.launcher.sockets_folder import OWNER, PREFIX


@pytest.fixture(autouse=True)
def base(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, since every run of this user looks into the usual one."""
    folder = tmp_path_factory.mktemp("s")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@contextmanager
def created() -> Iterator[Path]:
    with ExitStack() as held:
        yield sockets_folder.create(held)


def an_abandoned_folder(base: Path) -> Path:
    """What a killed launcher leaves: its sockets and its lock, which nobody holds."""
    folder = base / f"{PREFIX}killed00"
    folder.mkdir()
    os.close(sockets_folder._own(folder))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "shard-0"))
    return folder


def test_it_is_private_and_short(monkeypatch: pytest.MonkeyPatch, base: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base / ("long" * 30)))
    with created() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert len(bytes(folder / "replica-4095")) <= sockets_folder.LONGEST_PATH
    assert not folder.exists()


def test_what_a_killed_launcher_left_is_removed_by_the_next(base: Path) -> None:
    left = an_abandoned_folder(base)
    with created():
        assert not left.exists()
    assert list(base.iterdir()) == []


def test_the_folder_of_a_living_launcher_is_kept() -> None:
    with created() as living, created():
        assert living.exists()


def test_a_folder_in_the_making_is_kept(base: Path) -> None:
    made = base / f"{PREFIX}abcdefgh"
    made.mkdir()
    with created():
        assert made.exists()


def test_what_is_not_a_socket_is_kept(base: Path) -> None:
    left = an_abandoned_folder(base)
    (left / "notes.txt").write_text("mine")
    with created():
        pass
    assert sorted(path.name for path in left.iterdir()) == [OWNER, "notes.txt"]


def test_a_link_is_not_followed(base: Path, tmp_path: Path) -> None:
    (tmp_path / OWNER).touch()
    (base / f"{PREFIX}link").symlink_to(tmp_path)
    with created():
        assert (tmp_path / OWNER).exists()
