"""Which layouts are a model's."""

import pytest

from builders import placements
from disttrain.coordinator.errors import MessageRefused
from disttrain.coordinator.protocol import payloads
from disttrain.coordinator.protocol.messages import Join
from disttrain.state import layout
from disttrain.state.layout import ModelLayout, TensorSpec, require_sound
from disttrain.state.vector import Vector
from disttrain.transport.header import ElementType, Role


def test_a_model_in_double_precision_trains_the_vector_of_that_type() -> None:
    single = [placements.FROZEN, placements.PARAMETERS]
    assert layout.trained(single) == placements.PARAMETERS
    double = [placements.FROZEN_FLOAT64, placements.PARAMETERS_FLOAT64]
    assert layout.trained(double) == placements.PARAMETERS_FLOAT64
    assert layout.trained([]) == placements.PARAMETERS


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
            vector=placements.PARAMETERS,
            first=first,
        )
        for number, (shape, first) in enumerate(zip(shapes, firsts, strict=True))
    )
    told = ModelLayout(tensors=tensors)
    with pytest.raises(ValueError, match=r"begins at|more than"):
        require_sound(told)
    assert not is_taken(told)


@pytest.mark.parametrize(
    ("shape", "begins", "whole"),
    [
        ((2, 3), (3, 0), (4, 3)),
        ((2, 3), (-1, 0), (4, 3)),
        ((2, 3), (0,), (6,)),
        ((2, 3), (0, 0), ()),
        ((2, 3), (), (4, 3)),
    ],
)
def test_a_part_that_does_not_lie_in_its_tensor_is_refused(
    shape: tuple[int, ...], begins: tuple[int, ...], whole: tuple[int, ...]
) -> None:
    def told(begins: tuple[int, ...], whole: tuple[int, ...]) -> ModelLayout:
        spec = TensorSpec(
            name="a",
            aliases=(),
            shape=shape,
            dtype="float32",
            vector=placements.PARAMETERS,
            first=0,
            whole=whole,
            begins=begins,
        )
        return ModelLayout(tensors=(spec,))

    assert is_taken(told((1, 0), (4, 3)))
    with pytest.raises(ValueError, match="does not lie in"):
        require_sound(told(begins, whole))
    assert not is_taken(told(begins, whole))


@pytest.mark.parametrize("vector", [placements.TRIAL, placements.PARAMETERS.beside("momentum")])
def test_a_tensor_in_a_vector_that_no_model_has_is_refused(vector: Vector) -> None:
    told = placements.of_lengths({vector: 3})
    with pytest.raises(ValueError, match=r"lies in 0/(trial|momentum)/float32"):
        require_sound(told)
    assert not is_taken(told)
    assert is_taken(placements.of_lengths({placements.BUFFERS_INT64: 3}))


@pytest.mark.parametrize(
    ("vectors", "why"),
    [
        ([Vector(0, "parameters", ElementType.INT64)], "only buffers may"),
        ([placements.PARAMETERS, placements.PARAMETERS_FLOAT64], "lies in two vectors"),
        ([placements.BUFFERS_INT64._replace(partition=p) for p in range(201)], "the most are 200"),
    ],
)
def test_vectors_that_no_holder_could_keep_are_refused(vectors: list[Vector], why: str) -> None:
    told = placements.of_lengths(dict.fromkeys(vectors, 3))
    with pytest.raises(ValueError, match=why):
        require_sound(told)
    assert not is_taken(told)


def is_taken(told: ModelLayout) -> bool:
    """Whether the coordinator reads the request of a replica with such a model."""
    join = Join(role=Role.REPLICA, index=None, instance="a", pid=1, layout=told)
    try:
        return payloads.parse_request(payloads.encode_request(join)) == join
    except MessageRefused:
        return False
