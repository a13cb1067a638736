"""Restoring: any range, whoever held it."""

from pathlib import Path

import numpy as np
import pytest

from builders import placements
from builders.checkpoints import (
    SMALL,
    a_checkpoint,
    a_layout,
    a_placement,
    a_tensor,
    counting,
    parts_at,
    put_part,
)
from disttrain.checkpoint import model_map
from disttrain.checkpoint.errors import Corrupt
from disttrain.checkpoint.reading import Restore, parts
from disttrain.state.layout import ModelLayout
from disttrain.state.placement import Range

LAYOUT = ModelLayout(
    tensors=(
        *a_layout(SMALL).tensors,
        a_tensor("mean", (33,), vector=placements.BUFFERS_FLOAT32),
        a_tensor("count", (), dtype="int64", vector=placements.BUFFERS_INT64),
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
            ranges = a_placement(LAYOUT, after).ranges(index)
            for vector in values:
                held = ranges[vector]
                wanted = values[vector][held.first : held.end]
                into = np.empty_like(wanted)
                restore.read(vector, held, into.data)
                assert np.array_equal(into, wanted)


def test_the_optimizers_state_is_restored_by_the_same_ranges(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path, shards=3)
    into = np.empty(50, np.float32)
    with Restore(checkpoint) as restore:
        wanted = Range(20, 70)
        restore.read(placements.PARAMETERS.beside("sum_of_squares"), wanted, into.data)
        assert np.array_equal(into, np.arange(20, 70, dtype=np.float32) * 10)
        with pytest.raises(Corrupt, match=r"no tensor '0/momentum/float32'"):
            restore.read(placements.PARAMETERS.beside("momentum"), wanted, into.data)


def test_parts_lie_end_to_end_in_the_wanted_range(tmp_path: Path) -> None:
    manifest = a_checkpoint(tmp_path, shards=3).manifest
    found = parts(manifest, placements.PARAMETERS, Range(10, 80))
    assert [(part.holder, part.first, part.offset, part.count) for part in found] == [
        (0, 10, 0, 22), (1, 0, 22, 32), (2, 0, 54, 16),
    ]  # fmt: skip


def test_a_range_beyond_the_model_is_refused(tmp_path: Path) -> None:
    manifest = a_checkpoint(tmp_path).manifest
    with pytest.raises(ValueError, match=r"holds all of 0/parameters/float32 \[80, 90\)"):
        parts(manifest, placements.PARAMETERS, Range(80, 90))


def test_a_file_with_other_tensors_than_the_manifest_says_is_refused(tmp_path: Path) -> None:
    checkpoint = a_checkpoint(tmp_path)
    short = {placements.PARAMETERS: Range(0, 10)}
    put_part(parts_at(checkpoint.path), 0, short, counting(a_layout()))
    with Restore(checkpoint) as restore, pytest.raises(Corrupt, match="10 elements of type F32"):
        restore.check_files()


def test_the_layout_comes_back_from_the_manifest(tmp_path: Path) -> None:
    manifest = a_checkpoint(tmp_path, layout=LAYOUT, shards=2).manifest
    assert model_map.layout(manifest) == LAYOUT
