"""The history in checkpoints: what has not changed is not written again."""

import errno
import os
import shutil
from pathlib import Path
from typing import Never

import pytest

from builders import batch_shards
from builders.batch_shards import a_shard, perform, performed
from builders.checkpoints import flip_bit
from disttrain.checkpoint import names, reading, stores
from disttrain.checkpoint.errors import Corrupt
from disttrain.checkpoint.inspection import inspect
from disttrain.checkpoint.reading import Checkpoint
from disttrain.parameter_server.shard import Shard
from disttrain.sandblaster import operations as ops


def a_shard_with_history() -> Shard:
    """It has s0, s1 and s2, after command 5."""
    shard = a_shard()
    batch_shards.one_iteration([shard])
    for command in (4, 5):
        batch_shards.next_pair(shard, command)
    return shard


def files(checkpoint: Checkpoint) -> dict[str, Path]:
    """Of the history, by the vector's name."""
    vectors = checkpoint.manifest.holders[0].vectors
    return {one.vector.name: checkpoint.path / one.file.name for one in vectors}


def new_bytes(checkpoint: Checkpoint) -> int:
    """Of vectors that no other checkpoint has."""
    return sum(path.stat().st_size for path in files(checkpoint).values() if _is_alone(path))


def _is_alone(path: Path) -> bool:
    return path.stat().st_nlink == 1


def no_links(*_: object, **__: object) -> Never:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def test_the_second_checkpoint_writes_the_new_vectors_alone(tmp_path: Path) -> None:
    shard = a_shard_with_history()
    first = batch_shards.commit(tmp_path, [shard], 1)
    whole = new_bytes(first)
    performed(perform(shard, 6, ops.Combine(target="s1", terms={"gradient": 3.0})))
    second = batch_shards.commit(tmp_path, [shard], 2)

    assert new_bytes(second) == whole // 3
    for name in ("s0", "s2"):
        assert files(first)[name].samefile(files(second)[name])
    assert files(first)["s1"].name != files(second)["s1"].name
    assert stores.verify(second.path) == second
    again = a_shard()
    again.restore(batch_shards.read(second))
    assert batch_shards.vectors(again) == batch_shards.vectors(shard)


def test_a_vector_is_known_under_another_name(tmp_path: Path) -> None:
    shard = a_shard_with_history()
    first = batch_shards.commit(tmp_path, [shard], 1)
    performed(perform(shard, 6, ops.Swap(first="s0", second="s2")))
    second = batch_shards.commit(tmp_path, [shard], 2)

    assert new_bytes(second) == 0
    assert files(second)["s0"].samefile(files(first)["s2"])
    again = a_shard()
    again.restore(batch_shards.read(second))
    assert batch_shards.vectors(again) == batch_shards.vectors(shard)


def test_a_shard_that_came_back_writes_nothing_again(tmp_path: Path) -> None:
    shard = a_shard_with_history()
    first = batch_shards.commit(tmp_path, [shard], 1)
    again = a_shard()
    again.restore(batch_shards.read(first))
    second = batch_shards.commit(tmp_path, [again], 2)
    assert new_bytes(second) == 0
    assert files(second).keys() == {"s0", "s1", "s2"}


def test_other_shards_write_their_own_parts(tmp_path: Path) -> None:
    shard = a_shard_with_history()
    first = batch_shards.commit(tmp_path, [shard], 1)
    others = [a_shard(index=index, shards=2) for index in range(2)]
    for index, other in enumerate(others):
        other.restore(batch_shards.read(first, index, 2))
    second = batch_shards.commit(tmp_path, others, 2)

    assert new_bytes(second) > 0
    again = a_shard()
    again.restore(batch_shards.read(second))
    assert batch_shards.vectors(again) == batch_shards.vectors(shard)


def test_what_a_checkpoint_had_that_was_given_up_is_found_in_the_one_before(
    tmp_path: Path,
) -> None:
    shard = a_shard_with_history()
    first = batch_shards.commit(tmp_path, [shard], 1)
    given_up = batch_shards.commit(tmp_path, [shard], 2)
    shutil.rmtree(given_up.path)
    third = batch_shards.commit(tmp_path, [shard], 3)
    assert new_bytes(third) == 0
    assert files(third)["s0"].samefile(files(first)["s0"])


def test_nothing_is_shared_where_there_are_no_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", no_links)
    shard = a_shard_with_history()
    first, second = (batch_shards.commit(tmp_path, [shard], number) for number in (1, 2))
    assert new_bytes(second) == new_bytes(first) > 0
    assert stores.verify(second.path) == second


def test_a_file_goes_with_the_last_checkpoint_that_has_it(tmp_path: Path) -> None:
    shard = a_shard_with_history()
    for number in (1, 2, 3):
        batch_shards.commit(tmp_path, [shard], number)
        performed(perform(shard, number + 5, ops.Scale(vector="s1", factor=2.0)))
    assert stores.in_folder(tmp_path).retain(1) == (1, 2)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000003"]
    last = reading.verified(tmp_path / names.folder(3))
    assert all(_is_alone(path) for path in files(last).values())
    assert len(list(last.path.iterdir())) == 2 + 3, "manifest, shard, vectors"


def test_a_damaged_vector_is_named_and_the_checkpoint_without_it_is_offered(
    tmp_path: Path,
) -> None:
    shard = a_shard_with_history()
    first = batch_shards.commit(tmp_path, [shard], 1)
    batch_shards.next_pair(shard, 6)
    second = batch_shards.commit(tmp_path, [shard], 2)
    damaged = files(second)["s3"]
    flip_bit(damaged, -1)

    with pytest.raises(Corrupt, match=f"{damaged.name}: its hash is") as caught:
        stores.verify(second.path)
    assert caught.value.previous == first.path
    with pytest.raises(Corrupt, match=damaged.name):
        batch_shards.read(second)
    damaged.unlink()
    with pytest.raises(Corrupt, match=f"{damaged.name}: it is missing"):
        stores.verify(second.path)


def test_elements_that_are_equal_are_one_file(tmp_path: Path) -> None:
    shard = a_shard_with_history()
    performed(perform(shard, 6, ops.Copy(source="s0", target="s1")))
    checkpoint = batch_shards.commit(tmp_path, [shard])
    assert files(checkpoint)["s0"] == files(checkpoint)["s1"]
    assert stores.verify(checkpoint.path) == checkpoint
    again = a_shard()
    again.restore(batch_shards.read(checkpoint))
    assert batch_shards.vectors(again) == batch_shards.vectors(shard)


def test_inspection_lists_them_beside_the_other_state(tmp_path: Path) -> None:
    shard = a_shard_with_history()
    checkpoint = batch_shards.commit(tmp_path, [shard])
    (part,) = inspect(stores.verify(checkpoint.path), "here").shards
    own = {tensor.name for tensor in part.optimizer_state if tensor.file is not None}
    assert own == {"0/s0/float32", "0/s1/float32", "0/s2/float32"}
    assert {"0/gradient/float32", *own} < {tensor.name for tensor in part.optimizer_state}
    assert {tensor.elements for tensor in part.optimizer_state} == {batch_shards.ELEMENTS}
