import itertools
import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disttrain import layout
from disttrain.coordinator.errors import MessageRefused
from disttrain.coordinator.protocol import payloads
from disttrain.layout import ModelLayout, Range, TensorSpec, chunks, divide, require_sound
from disttrain.transport.header import ElementType, Vector


@given(
    elements=st.integers(0, 100_000),
    shards=st.integers(1, 40),
    element_type=st.sampled_from([ElementType.FLOAT32, ElementType.FLOAT64]),
)
def test_ranges_are_contiguous_aligned_and_nearly_equal(
    elements: int, shards: int, element_type: ElementType
) -> None:
    unit = 64 // (4 if element_type is ElementType.FLOAT32 else 8)
    ranges = divide(elements, element_type, shards)

    assert len(ranges) == shards
    assert (ranges[0].first, ranges[-1].end) == (0, elements)
    assert all(a.end == b.first for a, b in itertools.pairwise(ranges))
    assert all(part.first % unit == 0 or not part.count for part in ranges)
    assert max(part.count for part in ranges) - min(part.count for part in ranges) < 2 * unit


@given(first=st.integers(0, 1000), count=st.integers(0, 1000), size=st.integers(1, 100))
def test_chunks_cover_a_range_in_order(first: int, count: int, size: int) -> None:
    pieces = chunks(Range(first=first, end=first + count), size)

    assert [e for piece in pieces for e in range(piece.first, piece.end)] == list(
        range(first, first + count)
    )
    assert all(piece.count == size for piece in pieces[:-1])


def test_a_model_in_double_precision_trains_the_vector_of_that_type() -> None:
    assert layout.trainable({Vector.FROZEN: 3, Vector.PARAMETERS: 5}) is Vector.PARAMETERS
    double = {Vector.FROZEN_FLOAT64: 3, Vector.PARAMETERS_FLOAT64: 5}
    assert layout.trainable(double) is Vector.PARAMETERS_FLOAT64
    assert layout.trainable({}) is Vector.PARAMETERS


def test_a_trial_point_is_as_long_and_of_the_type_of_what_is_trained() -> None:
    for parameters, trial in layout.TRIAL_OF.items():
        assert layout.length_given_by(trial) is parameters
        assert layout.ELEMENT_TYPES[trial] is layout.ELEMENT_TYPES[parameters]
    assert layout.length_given_by(Vector.FROZEN) is Vector.FROZEN


@pytest.mark.parametrize(
    ("shapes", "firsts"),
    [
        ([(-1, 5)], [0]),
        ([(4,), (-2, -3)], [0, 4]),
        ([(4,), (2,)], [0, 3]),
        ([(4,)], [64]),
        ([(2**40, 2)], [0]),
        ([(2**40,), (1,)], [0, 2**40]),
    ],
)
def test_a_layout_that_no_model_has_is_refused(
    shapes: list[tuple[int, ...]], firsts: list[int]
) -> None:
    tensors = tuple(
        TensorSpec(
            name=f"t{number}",
            aliases=(),
            shape=shape,
            dtype="float32",
            vector=Vector.PARAMETERS,
            first=first,
        )
        for number, (shape, first) in enumerate(zip(shapes, firsts, strict=True))
    )
    join = {"kind": "join", "role": 3, "index": None, "instance": "a", "pid": 1}
    described = {"tensors": [asdict(tensor) for tensor in tensors]}
    with pytest.raises(ValueError, match=r"begins at|more than"):
        require_sound(ModelLayout(tensors=tensors))
    with pytest.raises(MessageRefused):
        payloads.parse_request(json.dumps(join | {"layout": described}).encode())
