"""How a model becomes flat vectors and how these are divided over shards. Pure: no torch, no I/O.

A model has up to five flat vectors (`Vector`), in single or double precision. Each is divided over
the shards in the same way: contiguous, 64-byte aligned ranges of nearly equal bytes (design,
section 7).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from disttrain.transport.header import ELEMENT_BYTES, ElementType, Vector

ALIGNMENT_BYTES = 64
MOST_ELEMENTS = 2**40
"""Of one vector: 4 TB in single precision."""

ELEMENT_TYPES = {
    Vector.PARAMETERS: ElementType.FLOAT32,
    Vector.FROZEN: ElementType.FLOAT32,
    Vector.BUFFERS_FLOAT32: ElementType.FLOAT32,
    Vector.BUFFERS_FLOAT64: ElementType.FLOAT64,
    Vector.BUFFERS_INT64: ElementType.INT64,
    Vector.TRIAL: ElementType.FLOAT32,
    Vector.PARAMETERS_FLOAT64: ElementType.FLOAT64,
    Vector.FROZEN_FLOAT64: ElementType.FLOAT64,
    Vector.TRIAL_FLOAT64: ElementType.FLOAT64,
}

TRIAL_OF = {
    Vector.PARAMETERS: Vector.TRIAL,
    Vector.PARAMETERS_FLOAT64: Vector.TRIAL_FLOAT64,
}
"""Trainable vectors, of which a model has at most one, and the points tried instead of them."""

_PARAMETERS_OF = {trial: parameters for parameters, trial in TRIAL_OF.items()}

BUFFERS = frozenset({Vector.BUFFERS_FLOAT32, Vector.BUFFERS_FLOAT64, Vector.BUFFERS_INT64})


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
    vector: Vector
    first: int
    """First element within the vector."""

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelLayout:
    """All tensors of a model, in the order of their vectors."""

    tensors: tuple[TensorSpec, ...]

    def elements(self, vector: Vector) -> int:
        """Length of a vector in elements; 0 if the model has none."""
        return sum(tensor.elements for tensor in self.tensors if tensor.vector is vector)


def require_sound(layout: ModelLayout) -> ModelLayout:
    """The same layout. Raises ValueError if its tensors do not lie one behind the other.

    For one from the network: shards allocate what it says.
    """
    ends: dict[Vector, int] = {}
    for tensor in layout.tensors:
        end = ends.get(tensor.vector, 0)
        if min(tensor.shape, default=1) < 0 or tensor.first != end:
            message = f"tensor {tensor.name[:100]!r} has shape {tensor.shape[:8]} and begins at "
            raise ValueError(message + f"{tensor.first}, behind {end} elements")
        ends[tensor.vector] = end + tensor.elements
        if ends[tensor.vector] > MOST_ELEMENTS:
            message = f"{tensor.vector.name} has more than {MOST_ELEMENTS} elements"
            raise ValueError(message)
    return layout


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """A half-open range [first, end) of a vector's elements."""

    first: int
    end: int

    @property
    def count(self) -> int:
        """Elements in the range."""
        return self.end - self.first


def trainable(vectors: Iterable[Vector]) -> Vector:
    """Which of a model's vectors is trained; PARAMETERS if it says none."""
    return next((vector for vector in vectors if vector in TRIAL_OF), Vector.PARAMETERS)


def length_given_by(vector: Vector) -> Vector:
    """The vector of the model that is as long as this one: a trial point is none of its own."""
    return _PARAMETERS_OF.get(vector, vector)


def divide(elements: int, element_type: ElementType, shards: int) -> tuple[Range, ...]:
    """One range per shard: contiguous, in shard order, aligned to 64 bytes.

    Their sizes differ by at most 64 bytes.

    Ranges of a short vector may be empty.
    """
    unit = ALIGNMENT_BYTES // ELEMENT_BYTES[element_type]
    units = -(-elements // unit)
    bounds = [min(elements, (units * shard // shards) * unit) for shard in range(shards)] + [
        elements
    ]
    return tuple(Range(first=a, end=b) for a, b in pairwise(bounds))


def chunks(whole: Range, chunk_elements: int) -> Sequence[Range]:
    """Cut a range into pieces of `chunk_elements`, the last one shorter; none if it is empty."""
    return [
        Range(first=first, end=min(first + chunk_elements, whole.end))
        for first in range(whole.first, whole.end, chunk_elements)
    ]
