"""A checkpoint is there whole or not at all, whatever happens to its writer."""

import resource
from pathlib import Path

import pytest

from builders import dying_writers, small_disk
from builders.checkpoints import a_checkpoint, a_layout, stage
from disttrain.checkpoint import export, stores
from disttrain.checkpoint.errors import NotWritten
from disttrain.checkpoint.stores import Store

MEBIBYTE = 1024 * 1024
BIG = a_layout({"big": (1024, 512)})
"""2 MiB of parameters and as much of optimizer state."""


@pytest.mark.parametrize("kind", ["plain", "history"])
def test_a_killed_writer_leaves_the_previous_checkpoint_or_the_whole_new_one(
    tmp_path: Path, kind: str
) -> None:
    deaths = dying_writers.deaths(tmp_path, kind)
    assert deaths[-1] == {"status": 0, "latest": 2, "complete": [2]}
    assert len(deaths) > 60  # Each file is opened, written, synced, closed, renamed; folders too.
    latest = [death["latest"] for death in deaths]
    assert latest == sorted(latest)
    assert set(latest) == {1, 2}
    assert [death["complete"][-1] for death in deaths] == latest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000002"]
    assert {path.stat().st_nlink for path in (tmp_path / "00000002").iterdir()} == {1}


def test_a_writer_after_a_killed_one_begins_anew(tmp_path: Path) -> None:
    kept = stores.in_folder(tmp_path)
    a_checkpoint(tmp_path, number=1)
    stage(kept.begin(2), a_layout(), 3)
    committed = kept.commit(stage(kept.begin(2), a_layout(), 1))
    assert sorted(path.name for path in committed.path.iterdir()) == [
        "coordinator.json", "manifest.json", "part-00000.safetensors",
    ]  # fmt: skip


def test_a_full_disk_leaves_the_previous_checkpoint_and_is_reported(tmp_path: Path) -> None:
    with small_disk.mounted(tmp_path / "disk", 7 * MEBIBYTE) as folder:
        kept = stores.in_folder(folder / "checkpoints")
        whole = a_checkpoint(folder / "checkpoints", layout=BIG, number=1)
        said = r"part-0000.*No space left on device; make room for its [0-9,]{9} bytes or"
        with pytest.raises(NotWritten, match=said):
            stage(kept.begin(2), BIG, 2)
        kept.abandon(2)
        assert stores.verify(whole.path) == whole
        assert kept.latest() == whole
        assert kept.retain(1) == ()
        _write_again_when_there_is_room(kept)


def _write_again_when_there_is_room(kept: Store) -> None:
    small = kept.commit(stage(kept.begin(kept.next_number()), a_layout(), 2))
    assert stores.verify(small.path) == kept.latest()


def test_an_export_to_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    whole = a_checkpoint(tmp_path / "store", layout=BIG)
    with small_disk.mounted(tmp_path / "disk", MEBIBYTE) as folder:
        with pytest.raises(NotWritten, match="No space left on device"):
            export.export(whole.path, folder / "model.safetensors")
        assert list(folder.iterdir()) == []


def test_a_limit_on_the_size_of_files_is_reported(tmp_path: Path) -> None:
    whole = a_checkpoint(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = stores.in_folder(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEBIBYTE, hard))
    try:
        with pytest.raises(NotWritten, match="File too large"):
            stage(kept.begin(2), BIG, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert stores.verify(whole.path) == kept.latest()
