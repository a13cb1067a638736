"""The element types of a model, and how they come back out of the wider ones of vectors. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disttrain.transport.header import Vector

Values = NDArray[Any]
"""Elements of whichever type; the vector says which."""

VECTOR_TYPES: dict[Vector, np.dtype[Any]] = {
    Vector.PARAMETERS: np.dtype("<f4"),
    Vector.FROZEN: np.dtype("<f4"),
    Vector.BUFFERS_FLOAT32: np.dtype("<f4"),
    Vector.BUFFERS_FLOAT64: np.dtype("<f8"),
    Vector.BUFFERS_INT64: np.dtype("<i8"),
    Vector.TRIAL: np.dtype("<f4"),
    Vector.PARAMETERS_FLOAT64: np.dtype("<f8"),
    Vector.FROZEN_FLOAT64: np.dtype("<f8"),
    Vector.TRIAL_FLOAT64: np.dtype("<f8"),
}
"""Element type of each vector's values."""

FILE_TYPES = {np.dtype("<f4"): "F32", np.dtype("<f8"): "F64", np.dtype("<i8"): "I64"}
"""Their names in a file."""


class OutOfRange(ValueError):
    """A whole number does not fit into the model's own type."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ElementType:
    """One of the types that a model's tensors may have."""

    file_type: str
    """Its name in a safetensors file."""
    vectors: frozenset[Vector]
    """Where such tensors lie."""
    narrow: Callable[[Values], Values]
    """From the vector's elements to this type's; at most one rounding (from float64 to bfloat16
    two). Raises OutOfRange."""


def _whole(name: str) -> Callable[[Values], Values]:
    target = np.dtype(name)
    limits = np.iinfo(target)

    def narrow(values: Values) -> Values:
        if values.size and (values.min() < limits.min or values.max() > limits.max):
            message = f"{values.min()} to {values.max()} do not fit into {name}"
            raise OutOfRange(message)
        return values.astype(target)

    return narrow


def _bool(values: Values) -> Values:
    return np.not_equal(values, 0).astype(np.uint8)


def _same(values: Values) -> Values:
    return values


def _single(values: Values) -> Values:
    return _single_or_half(values, "<f4")


def _single_or_half(values: Values, name: str) -> Values:
    with np.errstate(over="ignore"):  # What is too large becomes infinite, as in torch.
        return values.astype(name, copy=False)


def _half(values: Values) -> Values:
    return _single_or_half(values, "<f2")


def _brain_float(values: Values) -> Values:
    bits = _single(values).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    not_a_number = (bits >> 16) | 0x40  # Rounding could turn it into infinity.
    return np.where(np.isnan(values), not_a_number, rounded).astype("<u2")


_DOUBLES = frozenset({Vector.PARAMETERS_FLOAT64, Vector.FROZEN_FLOAT64, Vector.BUFFERS_FLOAT64})
"""A model that is trained in double precision has tensors of whichever type there."""
_FLOATS = _DOUBLES | {Vector.FROZEN, Vector.BUFFERS_FLOAT32}
_WHOLE = frozenset({Vector.BUFFERS_INT64})

TYPES = {
    "float32": ElementType(file_type="F32", vectors=_FLOATS | {Vector.PARAMETERS}, narrow=_single),
    "float64": ElementType(file_type="F64", vectors=_DOUBLES, narrow=_same),
    "float16": ElementType(file_type="F16", vectors=_FLOATS, narrow=_half),
    "bfloat16": ElementType(file_type="BF16", vectors=_FLOATS, narrow=_brain_float),
    "int64": ElementType(file_type="I64", vectors=_WHOLE, narrow=_same),
    "int32": ElementType(file_type="I32", vectors=_WHOLE, narrow=_whole("int32")),
    "int16": ElementType(file_type="I16", vectors=_WHOLE, narrow=_whole("int16")),
    "int8": ElementType(file_type="I8", vectors=_WHOLE, narrow=_whole("int8")),
    "uint8": ElementType(file_type="U8", vectors=_WHOLE, narrow=_whole("uint8")),
    "bool": ElementType(file_type="BOOL", vectors=_WHOLE, narrow=_bool),
}
"""By their names in PyTorch."""
