"""Vectors and tables for tests."""

from collections.abc import Mapping, Sequence

from disttrain.state.layout import ModelLayout, TensorSpec
from disttrain.state.placement import Placement, place
from disttrain.state.share import Share
from disttrain.state.vector import BUFFERS as _BUFFERS
from disttrain.state.vector import DOUBLE, SINGLE, Vector
from disttrain.state.vector import FROZEN as _FROZEN
from disttrain.transport.header import ElementType

PARAMETERS = SINGLE
FROZEN = SINGLE.beside(_FROZEN)
BUFFERS_FLOAT32 = SINGLE.beside(_BUFFERS)
BUFFERS_FLOAT64 = DOUBLE.beside(_BUFFERS)
BUFFERS_INT64 = Vector(0, _BUFFERS, ElementType.INT64)
TRIAL = SINGLE.beside("trial")
PARAMETERS_FLOAT64 = DOUBLE
FROZEN_FLOAT64 = DOUBLE.beside(_FROZEN)
TRIAL_FLOAT64 = DOUBLE.beside("trial")

DTYPES = {
    ElementType.FLOAT32: "float32",
    ElementType.FLOAT64: "float64",
    ElementType.INT64: "int64",
}


def of_lengths(elements: Mapping[Vector, int]) -> ModelLayout:
    """A model with one tensor in each vector."""
    return ModelLayout(
        tensors=tuple(
            TensorSpec(
                name=vector.name,
                aliases=(),
                shape=(count,),
                dtype=DTYPES[vector.element_type],
                vector=vector,
                first=0,
            )
            for vector, count in elements.items()
        )
    )


def a_placement(
    elements: Mapping[Vector, int], holders: int = 1, kept: Sequence[str] = ()
) -> Placement:
    """Vectors of these lengths over so many holders."""
    return place(of_lengths(elements), holders, kept)


def a_share(elements: Mapping[Vector, int], chunk_bytes: int, kept: Sequence[str] = ()) -> Share:
    """All of it."""
    return Share(a_placement(elements, 1, kept), 0, chunk_bytes)
