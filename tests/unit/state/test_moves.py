"""Values keep their places in the model, however it is divided before and after."""

import math
from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from disttrain.state.layout import ModelLayout, TensorSpec, require_sound
from disttrain.state.moves import Moves
from disttrain.state.placement import Range
from disttrain.state.vector import SINGLE, Vector

Values = NDArray[np.generic]
Cuts = tuple[tuple[int, ...], ...]
"""Of each dimension, where parts begin and the last one ends."""


@st.composite
def a_model(draw: st.DrawFn) -> tuple[dict[str, tuple[int, ...]], list[ModelLayout]]:
    shapes = {
        name: tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
        for name in ("filters", "weight", "bias")[: draw(st.integers(1, 3))]
    }
    return shapes, [a_layout(draw, shapes) for _ in range(2)]


def a_layout(draw: st.DrawFn, shapes: dict[str, tuple[int, ...]]) -> ModelLayout:
    partitions, ends, specs = draw(st.integers(1, 3)), [0, 0, 0], []
    for name, shape in shapes.items():
        cuts: Cuts = tuple(
            (
                0,
                *sorted(draw(st.sets(st.integers(1, size - 1), max_size=2)) if size > 1 else ()),
                size,
            )
            for size in shape
        )
        for number, box in enumerate(np.ndindex(*(len(each) - 1 for each in cuts))):
            begins = tuple(cut[at] for cut, at in zip(cuts, box, strict=True))
            part = tuple(cut[at + 1] - cut[at] for cut, at in zip(cuts, box, strict=True))
            partition = number % partitions
            is_whole = part == shape
            specs.append(
                TensorSpec(
                    name=name,
                    aliases=(),
                    shape=part,
                    dtype="float32",
                    vector=SINGLE._replace(partition=partition),
                    first=ends[partition],
                    whole=() if is_whole else shape,
                    begins=() if is_whole else begins,
                )
            )
            ends[partition] += math.prod(part)
    return require_sound(ModelLayout(tensors=tuple(specs)))


def vectors(layout: ModelLayout, values: Mapping[str, Values]) -> Mapping[Vector, Values]:
    found = {vector: np.zeros(count) for vector, count in layout.lengths().items()}
    for spec in layout.tensors:
        part = values[spec.name][spec.box].reshape(-1)
        found[spec.vector][spec.first : spec.first + spec.elements] = part
    return found


@given(a_model(), st.data())
def test_a_range_is_put_together_from_another_division(
    model: tuple[dict[str, tuple[int, ...]], list[ModelLayout]], data: st.DataObject
) -> None:
    shapes, (before, after) = model
    values = {
        name: np.arange(math.prod(shape)).reshape(shape) + 1000 * number
        for number, (name, shape) in enumerate(shapes.items())
    }
    old, new = vectors(before, values), vectors(after, values)
    moves = Moves(before, after)
    for vector, wanted in new.items():
        first = data.draw(st.integers(0, len(wanted)))
        end = data.draw(st.integers(first, len(wanted)))
        found = np.full(end - first, -1.0)
        for move in moves.into(vector, Range(first, end)):
            taken = old[move.vector][move.first : move.first + move.count]
            found[move.offset : move.offset + move.count] = taken
        assert np.array_equal(found, wanted[first:end])


def test_whole_rows_are_one_move() -> None:
    whole = TensorSpec(
        name="weight", aliases=(), shape=(6, 5), dtype="float32", vector=SINGLE, first=0
    )
    rows = TensorSpec(
        name="weight",
        aliases=(),
        shape=(4, 5),
        dtype="float32",
        vector=SINGLE,
        first=0,
        whole=(6, 5),
        begins=(2, 0),
    )
    (move,) = Moves(ModelLayout(tensors=(whole,)), ModelLayout(tensors=(rows,))).into(
        SINGLE, Range(0, 20)
    )
    assert (move.first, move.offset, move.count) == (10, 0, 20)
