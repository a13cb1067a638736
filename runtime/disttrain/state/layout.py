"""Which tensors a model has, and the place of each in its flat vectors. Pure: no torch, no I/O."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from disttrain.state.vector import BUFFERS, SINGLE, Vector, VectorText
from disttrain.transport.header import ElementType

MOST_ELEMENTS = 2**40
"""Of one vector: 4 TB in single precision."""
MOST_VECTORS_OF_A_MODEL = 200
"""A header has one byte for the number of a vector, and strategies keep some beside these."""


_IF_DIVIDED = Field(exclude_if=lambda found: not found)
"""Messages about a model that is not divided say nothing of it."""
Factor = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSpec:
    """One named tensor of the model and its place in a flat vector."""

    name: str
    """Its first name in the model; a tied parameter is stored once."""
    aliases: tuple[str, ...]
    """Further names of the same tensor (tied parameters)."""
    shape: tuple[int, ...]
    dtype: str
    """The model's own type ("float32", "int64", "bool"); the vector's may be wider."""
    vector: VectorText
    first: int
    """First element within the vector."""
    rate_factor: Factor = 1.0
    decay_factor: Factor = 1.0
    """Of the learning rate and the weight decay, for a parameter that is trained."""
    whole: Annotated[tuple[int, ...], _IF_DIVIDED] = ()
    """Shape of the model's tensor that this is a part of; empty: this is all of it."""
    begins: Annotated[tuple[int, ...], _IF_DIVIDED] = ()
    """Where the part begins in each dimension of that."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def box(self) -> tuple[slice, ...]:
        """Where this lies in the model's tensor."""
        begins = self.begins or (0,) * len(self.shape)
        return tuple(
            slice(first, first + size) for first, size in zip(begins, self.shape, strict=True)
        )

    @property
    def of_model(self) -> tuple[int, ...]:
        """Shape of the model's tensor."""
        return self.whole or self.shape


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelLayout:
    """All tensors of a model, in the order of their vectors."""

    tensors: tuple[TensorSpec, ...]
    own: str = ""
    """Hash of the frozen parameters that each replica has for itself. Empty: it is not known, or
    there are none."""

    @property
    def partitions(self) -> int:
        """Over how many the model is divided; perhaps the last ones have no tensor."""
        return 1 + max((tensor.vector.partition for tensor in self.tensors), default=0)

    def elements(self, vector: Vector) -> int:
        return self.lengths().get(vector, 0)

    def lengths(self) -> dict[Vector, int]:
        """Length in elements of every vector that tensors lie in, in their order."""
        found: dict[Vector, int] = {}
        for tensor in self.tensors:
            found[tensor.vector] = found.get(tensor.vector, 0) + tensor.elements
        return found


def require_sound(layout: ModelLayout) -> ModelLayout:
    """The same layout. Raises ValueError if its tensors do not lie one behind the other.

    For one from the network: shards allocate what it says.
    """
    ends: dict[Vector, int] = {}
    for tensor in layout.tensors:
        end = ends.get(tensor.vector, 0)
        if problem := _problem(tensor, end):
            message = f"tensor {tensor.name[:100]!r} {problem}"
            raise ValueError(message)
        ends[tensor.vector] = end + tensor.elements
        if ends[tensor.vector] > MOST_ELEMENTS:
            message = f"{tensor.vector} has more than {MOST_ELEMENTS} elements"
            raise ValueError(message)
    if len(ends) > MOST_VECTORS_OF_A_MODEL:
        message = f"the model has {len(ends)} vectors, the most are {MOST_VECTORS_OF_A_MODEL}"
        raise ValueError(message)
    partitions = [vector.partition for vector in ends if vector.is_trained]
    if len(set(partitions)) < len(partitions):
        message = "what is trained in a partition lies in two vectors"
        raise ValueError(message)
    return layout


def _problem(tensor: TensorSpec, end: int) -> str:
    """Of a tensor whose vector has so many elements before it; empty: there is none."""
    if min(tensor.shape, default=1) < 0 or tensor.first != end:
        return f"has shape {tensor.shape[:8]} and begins at {tensor.first}, behind {end} elements"
    if not _lies_inside(tensor):
        shape = tensor.shape[:8]
        return f"of shape {shape} at {tensor.begins[:8]} does not lie in {tensor.whole[:8]}"
    if not tensor.vector.is_of_a_model:
        return f"lies in {tensor.vector}, which no model has"
    is_counter = tensor.vector.element_type is ElementType.INT64
    if is_counter and tensor.vector.name != BUFFERS:
        return f"lies in {tensor.vector}: only buffers may"
    return ""


def _lies_inside(tensor: TensorSpec) -> bool:
    if len(tensor.whole) != len(tensor.begins):
        return False
    if not tensor.whole:
        return True
    if len(tensor.whole) != len(tensor.shape):
        return False
    sides = zip(tensor.begins, tensor.shape, tensor.whole, strict=True)
    return all(0 <= first <= end - size for first, size, end in sides)


SoundLayout = Annotated[ModelLayout, AfterValidator(require_sound)]
"""In a message."""


def trained(vectors: Iterable[Vector]) -> Vector:
    """Which of a partition's vectors is trained; `SINGLE` if it says none."""
    return next((vector for vector in vectors if vector.is_trained), SINGLE)
