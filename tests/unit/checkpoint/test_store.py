"""The store: what is there after what happened."""

from pathlib import Path

import pytest

from builders.checkpoints import a_checkpoint, a_layout, flip_bit, folder_of, stage
from disttrain.checkpoint import names, stores
from disttrain.checkpoint.errors import AlreadyThere, Corrupt, NoCheckpoint


def test_what_was_committed_is_the_latest_and_verifies(tmp_path: Path) -> None:
    committed = a_checkpoint(tmp_path, shards=3)
    found = stores.in_folder(tmp_path).latest()
    assert found == committed
    assert stores.verify(committed.path) == committed
    assert committed.path == tmp_path / "00000001"


def test_nothing_is_there_before_the_first_commit(tmp_path: Path) -> None:
    missing = stores.in_folder(tmp_path / "none")
    assert (missing.latest(), missing.list(), missing.next_number()) == (None, (), 1)
    staging = missing.begin(1)
    stage(staging, a_layout(), 2)
    assert (missing.latest(), missing.list(), missing.next_number()) == (None, (), 1)


def test_numbers_go_on_after_a_damaged_checkpoint(tmp_path: Path) -> None:
    a_checkpoint(tmp_path)
    damaged = a_checkpoint(tmp_path, number=2)
    (damaged.path / names.MANIFEST).unlink()
    found = stores.in_folder(tmp_path)
    assert found.next_number() == 3
    assert [each.manifest.number for each in found.list()] == [1]


def test_a_number_is_never_written_twice(tmp_path: Path) -> None:
    a_checkpoint(tmp_path)
    with pytest.raises(AlreadyThere, match="begin checkpoint 2 instead"):
        stores.in_folder(tmp_path).begin(1)


def test_beginning_again_forgets_what_was_staged(tmp_path: Path) -> None:
    kept = stores.in_folder(tmp_path)
    stage(kept.begin(1), a_layout(), 3)
    assert list(folder_of(kept.begin(1)).iterdir()) == []


def test_abandoning_leaves_nothing(tmp_path: Path) -> None:
    kept = stores.in_folder(tmp_path)
    stage(kept.begin(1), a_layout(), 2)
    kept.abandon(1)
    assert list(tmp_path.iterdir()) == []


def test_commit_refuses_a_file_that_is_missing_or_short(tmp_path: Path) -> None:
    kept = stores.in_folder(tmp_path)
    staging = kept.begin(1)
    manifest = stage(staging, a_layout(), 2)
    (folder_of(staging) / names.part_file(1)).unlink()
    with pytest.raises(Corrupt, match=r"part-00001.safetensors: it is missing"):
        kept.commit(manifest)
    (folder_of(staging) / names.part_file(1)).write_bytes(b"short")
    with pytest.raises(Corrupt, match="it has 5 bytes"):
        kept.commit(manifest)
    assert kept.latest() is None


def test_retention_keeps_the_newest_and_removes_leftovers(tmp_path: Path) -> None:
    kept = stores.in_folder(tmp_path)
    for number in (1, 2, 4, 7):
        a_checkpoint(tmp_path, number=number)
    (tmp_path / names.staging(3)).mkdir()
    (tmp_path / names.removal(2)).mkdir()
    in_progress = kept.begin(8)
    (tmp_path / "journal").mkdir()
    assert kept.retain(2) == (1, 2)
    assert {path.name for path in tmp_path.iterdir()} == {
        names.folder(4), names.folder(7), folder_of(in_progress).name, "journal",
    }  # fmt: skip


def test_retention_keeps_at_least_one(tmp_path: Path) -> None:
    for number in (1, 2):
        a_checkpoint(tmp_path, number=number)
    assert stores.in_folder(tmp_path).retain(0) == (1,)
    assert [found.manifest.number for found in stores.in_folder(tmp_path).list()] == [2]


def test_who_reads_one_that_is_deleted_meanwhile_leaves_no_trace(tmp_path: Path) -> None:
    kept = stores.in_folder(tmp_path)
    old = a_checkpoint(tmp_path)
    a_checkpoint(tmp_path, number=2)
    assert kept.retain(1) == (1,)
    with pytest.raises(Corrupt, match="it is missing"):
        kept.bring(old)
    assert kept.numbers() == (2,)


def test_a_damaged_one_goes_with_the_old_ones(tmp_path: Path) -> None:
    for number in (1, 2):
        last = a_checkpoint(tmp_path, number=number)
    flip_bit(tmp_path / names.folder(1) / names.MANIFEST, 0)
    assert stores.in_folder(tmp_path).retain(1) == (1,)
    assert [path.name for path in tmp_path.iterdir()] == [last.path.name]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoCheckpoint, match="00000009 is no folder of a checkpoint"):
        stores.verify(tmp_path / "00000009")


def test_a_checkpoint_without_manifest_is_half_written(tmp_path: Path) -> None:
    whole = a_checkpoint(tmp_path)
    half = a_checkpoint(tmp_path, number=2)
    (half.path / names.MANIFEST).unlink()
    with pytest.raises(Corrupt, match="not written to its end") as found:
        stores.verify(half.path)
    assert found.value.previous == whole.path
    assert str(whole.path) in str(found.value)
    assert stores.in_folder(tmp_path).latest() == whole


@pytest.mark.parametrize("file", [names.part_file(0), names.part_file(1), names.COORDINATOR])
def test_every_file_is_checked_for_length_and_content(tmp_path: Path, file: str) -> None:
    whole = a_checkpoint(tmp_path)
    for number, damage in enumerate((_truncate, _flip_last, _flip_first, _remove), start=2):
        damaged = a_checkpoint(tmp_path, number=number)
        damage(damaged.path / file)
        with pytest.raises(Corrupt) as found:
            stores.verify(damaged.path)
        assert Path(found.value.file).name == file
        assert found.value.previous == whole.path


def _truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def _remove(file: Path) -> None:
    file.unlink()


def _flip_last(file: Path) -> None:
    flip_bit(file, -1)


def _flip_first(file: Path) -> None:
    flip_bit(file, 0)


def test_the_one_offered_is_itself_verified(tmp_path: Path) -> None:
    oldest = a_checkpoint(tmp_path)
    for number in (2, 3):
        flip_bit(a_checkpoint(tmp_path, number=number).path / names.part_file(0), -1)
    with pytest.raises(Corrupt) as found:
        stores.verify(tmp_path / names.folder(3))
    assert found.value.previous == oldest.path


def test_nothing_is_offered_when_nothing_is_whole(tmp_path: Path) -> None:
    only = a_checkpoint(tmp_path)
    flip_bit(only.path / names.part_file(0), -1)
    with pytest.raises(Corrupt) as found:
        stores.verify(only.path)
    assert found.value.previous is None


def test_a_flipped_bit_in_the_manifest_is_found_or_changes_nothing_read(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path)
    flip_bit(checkpoint.path / names.MANIFEST, 0)
    with pytest.raises(Corrupt, match=r"manifest\.json"):
        stores.verify(checkpoint.path)


def test_a_folder_with_the_number_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    a_checkpoint(tmp_path).path.rename(tmp_path / names.folder(9))
    with pytest.raises(Corrupt, match="it is of checkpoint 1, not of 00000009"):
        stores.verify(tmp_path / names.folder(9))


def test_a_copy_under_a_free_name_is_taken(tmp_path: Path) -> None:
    copy = a_checkpoint(tmp_path).path.rename(tmp_path / "good")
    assert stores.verify(copy).path == copy


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path)
    file = checkpoint.path / names.part_file(0)
    moved = file.rename(tmp_path / "moved")
    file.symlink_to(moved)
    with pytest.raises(Corrupt, match=r"part-00000"):
        stores.verify(checkpoint.path)
