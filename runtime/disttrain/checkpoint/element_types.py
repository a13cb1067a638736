"""The element types of a model, and how they come back out of the wider ones of vectors. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disttrain.transport.header import ElementType

Values = NDArray[Any]
"""Elements of whichever type; the vector says which."""

DTYPES: dict[ElementType, np.dtype[Any]] = {
    ElementType.FLOAT32: np.dtype("<f4"),
    ElementType.FLOAT64: np.dtype("<f8"),
    ElementType.INT64: np.dtype("<i8"),
}
"""Of the elements of vectors."""

FILE_TYPES = {ElementType.FLOAT32: "F32", ElementType.FLOAT64: "F64", ElementType.INT64: "I64"}
"""Their names in a file."""


class OutOfRange(ValueError):
    """A whole number does not fit into the model's own type."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelType:
    """One of the types that a model's tensors may have."""

    file_type: str
    """Its name in a safetensors file."""
    held_as: frozenset[ElementType]
    """Types of the vectors in which such tensors may lie."""
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


def _rounded(name: str) -> Callable[[Values], Values]:
    def narrow(values: Values) -> Values:
        with np.errstate(over="ignore"):  # What is too large becomes infinite, as in torch.
            return values.astype(name, copy=False)

    return narrow


_single = _rounded("<f4")


def _brain_float(values: Values) -> Values:
    bits = _single(values).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    not_a_number = (bits >> 16) | 0x40  # Rounding could turn it into infinity.
    return np.where(np.isnan(values), not_a_number, rounded).astype("<u2")


_FLOATS = frozenset({ElementType.FLOAT32, ElementType.FLOAT64})
"""A model that is trained in double precision has tensors of whichever type there."""
_DOUBLE = frozenset({ElementType.FLOAT64})
_WHOLE = frozenset({ElementType.INT64})

TYPES = {
    "float32": ModelType(file_type="F32", held_as=_FLOATS, narrow=_single),
    "float64": ModelType(file_type="F64", held_as=_DOUBLE, narrow=_same),
    "float16": ModelType(file_type="F16", held_as=_FLOATS, narrow=_rounded("<f2")),
    "bfloat16": ModelType(file_type="BF16", held_as=_FLOATS, narrow=_brain_float),
    "int64": ModelType(file_type="I64", held_as=_WHOLE, narrow=_same),
    "int32": ModelType(file_type="I32", held_as=_WHOLE, narrow=_whole("int32")),
    "int16": ModelType(file_type="I16", held_as=_WHOLE, narrow=_whole("int16")),
    "int8": ModelType(file_type="I8", held_as=_WHOLE, narrow=_whole("int8")),
    "uint8": ModelType(file_type="U8", held_as=_WHOLE, narrow=_whole("uint8")),
    "bool": ModelType(file_type="BOOL", held_as=_WHOLE, narrow=_bool),
}
"""By their names in PyTorch."""
