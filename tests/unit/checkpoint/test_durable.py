"""The order of system calls: nothing is named before it is on disk."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.checkpoints import a_layout, stage
from disttrain.checkpoint import durable, stores
from disttrain.checkpoint.durable import DurableFile
from disttrain.checkpoint.errors import NotWritten

Calls = list[tuple[str, Path]]


@pytest.fixture(name="calls")
def _calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """System calls that decide what survives, with the file that each is about."""
    seen: Calls = []

    def watch(name: str, subject: Callable[..., Path]) -> None:
        original = getattr(os, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            seen.append((name, subject(*arguments)))
            return original(*arguments, **options)

        monkeypatch.setattr(os, name, watched)

    watch("write", _name_of)
    watch("fsync", _name_of)
    watch("rename", lambda source, _target: Path(source))
    return seen


def _name_of(descriptor: int, *_: object) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def test_whatever_is_renamed_was_synced_after_its_last_change(tmp_path: Path, calls: Calls) -> None:
    kept = stores.in_folder(tmp_path)
    kept.commit(stage(kept.begin(1), a_layout(), 2))
    renames = [place for place, (name, _) in enumerate(calls) if name == "rename"]
    assert len(renames) == 5  # Two shards, the coordinator's file, the manifest, the folder.
    for place in renames:
        source = calls[place][1]
        changes = [name for name, path in calls[:place] if path == source]
        assert changes[-1] == "fsync"
        following = calls[place + 1]
        assert following == ("fsync", source.parent)


def test_the_folder_gets_its_number_last(tmp_path: Path, calls: Calls) -> None:
    kept = stores.in_folder(tmp_path)
    kept.commit(stage(kept.begin(1), a_layout(), 2))
    assert [path for name, path in calls if name == "rename"][-1] == tmp_path / ".staging-00000001"
    assert calls[-1] == ("fsync", tmp_path)


def test_every_new_folder_is_on_disk_before_what_is_in_it(tmp_path: Path, calls: Calls) -> None:
    stores.in_folder(tmp_path / "run" / "checkpoints").begin(1)
    synced = [path for name, path in calls if name == "fsync"]
    assert synced == [tmp_path, tmp_path / "run", tmp_path / "run" / "checkpoints"]


def test_dirty_memory_is_bounded_while_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(durable, "FLUSH_BYTES", 100)
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    with DurableFile(tmp_path / "file") as file:
        for _ in range(10):
            file.write(bytes(30))
    assert len(flushed) == 2


def test_a_failing_sync_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("old")

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(NotWritten, match="Input/output error"), DurableFile(tmp_path / "file") as f:
        f.write(b"new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]
