"""A checkpoint comes back into a model that is divided otherwise."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from builders import checkpoints, downpour_shards
from disttrain.checkpoint import inspection, model_map
from disttrain.checkpoint.errors import WrongModel
from disttrain.checkpoint.reading import Checkpoint
from disttrain.holder import restoring
from disttrain.holder.restoring import Restored, Wanted
from disttrain.state.layout import ModelLayout, require_sound
from disttrain.state.placement import place
from disttrain.state.share import Share
from disttrain.state.vector import SINGLE

STATE = "sum_of_squares"
WHOLE = checkpoints.a_layout()
OTHERS = SINGLE._replace(partition=1)


def in_two(rows: int) -> ModelLayout:
    """The first partition has so many rows of both matrices and the bias, the second the rest."""
    specs, ends = [], [0, 0]
    for spec in WHOLE.tensors:
        for partition, (first, end) in enumerate(((0, rows), (rows, spec.shape[0]))):
            part = replace(
                spec,
                shape=(end - first, *spec.shape[1:]),
                vector=SINGLE._replace(partition=partition),
                first=ends[partition],
                whole=spec.shape,
                begins=(first, *[0] * (len(spec.shape) - 1)),
            )
            specs.append(part)
            ends[partition] += part.elements
    return require_sound(ModelLayout(tensors=tuple(specs)))


def whole_tensors() -> dict[str, NDArray[np.float32]]:
    values = np.arange(WHOLE.elements(SINGLE), dtype=np.float32)
    return {
        spec.name: values[spec.first : spec.first + spec.elements].reshape(spec.shape)
        for spec in WHOLE.tensors
    }


def a_divided_checkpoint(folder: Path, layout: ModelLayout) -> Checkpoint:
    """Of those tensors, in two partitions."""
    tensors = whole_tensors()
    values = {
        vector: np.concatenate(
            [
                tensors[spec.name][spec.box].ravel()
                for spec in layout.tensors
                if spec.vector == vector
            ]
        )
        for vector in (SINGLE, OTHERS)
    }
    return checkpoints.a_divided_checkpoint(
        folder, model_map.tensors(layout), model_map.pieces(layout), values
    )


def restored(
    checkpoint: Checkpoint, layout: ModelLayout, holders: int, state: tuple[str, ...] = ()
) -> list[Restored]:
    table = place(layout, holders, state)
    makers = {"adagrad": downpour_shards.with_state(state)}
    found = [
        restoring.restore(
            [checkpoint], Wanted(share=Share(table, holder, 4096), layout=layout, makers=makers)
        )
        for holder in range(holders)
    ]
    return [each for each in found if each is not None]


def assert_all_is_there(found: list[Restored], layout: ModelLayout, factor: float = 1.0) -> None:
    name = "parameters" if factor == 1.0 else STATE
    vectors = {
        vector: np.concatenate(
            [
                each.values.tensor(vector.beside(name)).numpy()
                for each in found
                if each.values.has(vector.beside(name))
            ]
        )
        for vector in layout.lengths()
    }
    for spec in layout.tensors:
        held = vectors[spec.vector][spec.first : spec.first + spec.elements]
        wanted = whole_tensors()[spec.name][spec.box] * factor
        np.testing.assert_array_equal(held.reshape(spec.shape), wanted)


@pytest.mark.parametrize("holders", [2, 3, 5])
def test_parameters_and_what_is_kept_beside_them_find_their_places(
    tmp_path: Path, holders: int
) -> None:
    checkpoint, layout = checkpoints.a_checkpoint(tmp_path, shards=3), in_two(2)

    found = restored(checkpoint, layout, holders, (STATE,))

    assert len(found) == holders
    assert all(each.is_resharded for each in found)
    assert_all_is_there(found, layout)
    assert_all_is_there(found, layout, factor=10.0)


def test_parameters_of_groups_find_their_places_too(tmp_path: Path) -> None:
    """Their factors stand in no checkpoint."""
    layout = in_two(2)
    first, *others = layout.tensors
    grouped = replace(layout, tensors=(replace(first, rate_factor=0.5), *others))

    found = restored(checkpoints.a_checkpoint(tmp_path, shards=1), grouped, 2)

    assert_all_is_there(found, grouped)


@pytest.mark.parametrize("layout", [WHOLE, in_two(3)])
def test_a_divided_model_comes_back_into_one_part_or_into_others(
    tmp_path: Path, layout: ModelLayout
) -> None:
    checkpoint = a_divided_checkpoint(tmp_path, in_two(1))

    found = restored(checkpoint, layout, 2)

    assert all(each.is_resharded for each in found)
    assert_all_is_there(found, layout)


def test_what_is_divided_as_it_was_is_read_as_it_lies(tmp_path: Path) -> None:
    found = restored(checkpoints.a_checkpoint(tmp_path, shards=2), WHOLE, 2, (STATE,))

    assert not any(each.is_resharded for each in found)
    assert_all_is_there(found, WHOLE)


def test_a_tensor_is_shown_once_with_all_vectors_that_have_of_it(tmp_path: Path) -> None:
    found = inspection.inspect(a_divided_checkpoint(tmp_path, in_two(1)), "here")

    assert [(each.name, each.shape) for each in found.tensors] == [
        (spec.name, spec.shape) for spec in WHOLE.tensors
    ]
    assert {each.vector for each in found.tensors} == {f"{SINGLE}, {OTHERS}"}


def test_another_model_is_refused_by_its_tensor(tmp_path: Path) -> None:
    checkpoint = checkpoints.a_checkpoint(tmp_path)
    other = checkpoints.a_layout({**checkpoints.SMALL, "first.bias": (6,)})

    with pytest.raises(WrongModel, match=r"first\.bias"):
        restored(checkpoint, other, 1)
