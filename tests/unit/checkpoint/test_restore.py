"""Restoring: any range, from any number of shards."""

from pathlib import Path

import numpy as np
import pytest

from builders.checkpoints import SMALL, a_checkpoint, a_layout, a_tensor, counting, write_shard
from disttrain.checkpoint import model_map
from disttrain.checkpoint.errors import Corrupt
from disttrain.checkpoint.manifest import VectorRange
from disttrain.checkpoint.restore import Restore, parts
from disttrain.layout import ModelLayout
from disttrain.transport.header import Vector

LAYOUT = ModelLayout(
    tensors=(
        *a_layout(SMALL).tensors,
        a_tensor("mean", (33,), vector=Vector.BUFFERS_FLOAT32),
        a_tensor("count", (), dtype="int64", vector=Vector.BUFFERS_INT64),
    )
)


@pytest.mark.parametrize("before", [1, 2, 3, 5])
@pytest.mark.parametrize("after", [1, 2, 4])
def test_a_checkpoint_restores_into_another_number_of_shards(
    tmp_path: Path, before: int, after: int
) -> None:
    checkpoint = a_checkpoint(tmp_path, layout=LAYOUT, shards=before)
    values = counting(LAYOUT)
    with Restore(checkpoint) as restore:
        for index in range(after):
            for part in model_map.ranges(LAYOUT, index, after):
                wanted = values[part.vector][part.first : part.end]
                into = np.empty_like(wanted)
                restore.read(part, into.data)
                assert np.array_equal(into, wanted)


def test_the_optimizers_state_is_restored_by_the_same_ranges(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path, shards=3)
    into = np.empty(50, np.float32)
    with Restore(checkpoint) as restore:
        wanted = VectorRange(vector=Vector.PARAMETERS, first=20, end=70)
        restore.read(wanted, into.data, "sum_of_squares")
        assert np.array_equal(into, np.arange(20, 70, dtype=np.float32) * 10)
        with pytest.raises(Corrupt, match=r"no tensor 'PARAMETERS.momentum'"):
            restore.read(wanted, into.data, "momentum")


def test_parts_lie_end_to_end_in_the_wanted_range(tmp_path: Path) -> None:
    manifest = a_checkpoint(tmp_path, shards=3).manifest
    found = parts(manifest, VectorRange(vector=Vector.PARAMETERS, first=10, end=80))
    assert [(part.shard, part.first, part.offset, part.count) for part in found] == [
        (0, 10, 0, 22), (1, 0, 22, 32), (2, 0, 54, 16),
    ]  # fmt: skip


def test_a_range_beyond_the_model_is_refused(tmp_path: Path) -> None:
    manifest = a_checkpoint(tmp_path).manifest
    with pytest.raises(ValueError, match=r"holds no PARAMETERS \[80, 90\)"):
        parts(manifest, VectorRange(vector=Vector.PARAMETERS, first=80, end=90))


def test_a_file_with_other_tensors_than_the_manifest_says_is_refused(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path)
    short = [VectorRange(vector=Vector.PARAMETERS, first=0, end=10)]
    write_shard(checkpoint.path, 0, short, counting(a_layout()))
    with Restore(checkpoint) as restore, pytest.raises(Corrupt, match="10 elements of type F32"):
        restore.check_files()


def test_the_layout_comes_back_from_the_manifest(tmp_path: Path) -> None:
    manifest = a_checkpoint(tmp_path, layout=LAYOUT, shards=2).manifest
    assert model_map.layout(manifest) == LAYOUT
