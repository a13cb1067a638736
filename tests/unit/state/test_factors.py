"""Factors of ranges, as shards go by them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from builders import placements
from disttrain.state import factors
from disttrain.state.factors import Factors, within
from disttrain.state.layout import ModelLayout, TensorSpec
from disttrain.state.placement import Placement, SoundPlacement, place

_SOUND = TypeAdapter(SoundPlacement)


def a_layout(*tensors: tuple[int, float, float]) -> ModelLayout:
    """Elements, and factors of rate and decay; behind them a frozen one."""
    specs, first = [], 0
    for number, (count, rate, decay) in enumerate(tensors):
        specs.append(
            TensorSpec(
                name=f"t{number}",
                aliases=(),
                shape=(count,),
                dtype="float32",
                vector=placements.PARAMETERS,
                first=first,
                rate_factor=rate,
                decay_factor=decay,
            )
        )
        first += count
    frozen = replace(specs[0], name="frozen", vector=placements.FROZEN, first=0)
    return ModelLayout(tensors=(*specs, frozen))


def test_neighbours_that_are_alike_are_one_range_and_usual_ones_none() -> None:
    layout = a_layout((4, 1, 1), (2, 1, 0), (3, 1, 0), (0, 2, 0), (5, 2, 0), (6, 1, 1), (7, 1, 0))

    assert factors.of_layout(layout) == (
        Factors(4, 9, 1.0, 0.0),
        Factors(9, 14, 2.0, 0.0),
        Factors(20, 27, 1.0, 0.0),
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from([0.0, 1.0, 2.0]), st.just(1.0)), min_size=1
    ),
    st.integers(0, 40),
    st.integers(1, 60),
)
def test_each_element_finds_the_factors_of_its_tensor(
    tensors: list[tuple[int, float, float]], first: int, count: int
) -> None:
    of_each = [rate for elements, rate, _ in tensors for _ in range(elements)]
    of_each += [1.0] * (first + count - len(of_each))

    found = list(within(factors.of_layout(a_layout(*tensors)), first, first + count))

    spread = [each.learning_rate for each in found for _ in range(each.first, each.end)]
    assert spread == of_each[first : first + count]
    assert [each.first for each in found[1:]] == [each.end for each in found[:-1]]


def test_a_placement_tells_them_and_one_of_before_has_none() -> None:
    made = place(a_layout((40, 1, 1), (8, 0.5, 0)), 3)
    text = _SOUND.dump_json(made)
    former = _SOUND.dump_json(replace(made, factors=())).replace(b',"factors":[]', b"")

    assert _SOUND.validate_json(text, strict=True) == made
    assert made.factors == (Factors(40, 48, 0.5, 0.0),)
    assert b"factors" not in former
    assert _SOUND.validate_json(former, strict=True).factors == ()


@pytest.mark.parametrize(
    "wrong",
    ["[[4,4,1,0]]", "[[4,6,1,0],[5,7,1,0]]", "[[0,4,-1,0]]", "[[0,4,1,NaN]]", "[[-1,4,1,0]]"],
)
def test_wrong_ranges_and_factors_are_refused(wrong: str) -> None:
    made = _SOUND.dump_json(Placement(vectors=(), holders=()))
    with pytest.raises(ValidationError):
        _SOUND.validate_json(made.replace(b"[]}", wrong.encode() + b"}"), strict=True)
