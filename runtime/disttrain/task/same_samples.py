"""Whether samples of a data set are the same, as far as that can be told. Pure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

_PLAIN = (type(None), str, bytes, bytearray, int, float, complex)


def are_the_same(one: Any, other: Any) -> bool:
    """Compare numbers, texts, bytes, arrays, tensors and what is nested of them, by their values.

    Other objects are never the same: what `==` of a user's class means is unknown.
    """
    if type(one) is not type(other):
        return False
    match one:
        case Tensor():
            return _are_same_tensors(one, other)
        case np.ndarray() | np.generic():
            return one.dtype == other.dtype and one.dtype.kind != "O" and np.array_equal(one, other)
        case Mapping():
            is_alike = one.keys() == other.keys()
            return is_alike and all(are_the_same(value, other[key]) for key, value in one.items())
        case list() | tuple():
            return len(one) == len(other) and all(map(are_the_same, one, other))
    return isinstance(one, _PLAIN) and bool(one == other)


def _are_same_tensors(one: Tensor, other: Tensor) -> bool:
    """Not of other layouts: torch compares none of them."""
    is_known = one.layout is other.layout is torch.strided and not one.is_quantized
    return is_known and one.dtype is other.dtype and torch.equal(one, other)
