"""Received bytes as tensors, and whether their values can be used."""

import math
import warnings

import torch
from torch import Tensor

from disttrain.holder.values import DTYPES
from disttrain.transport.header import ElementType

with warnings.catch_warnings():
    # torch warns once per process that it does not keep read-only memory from being written.
    # Nothing here writes to a received payload.
    warnings.simplefilter("ignore")
    torch.frombuffer(b"\0", dtype=torch.uint8)


def tensor_of(payload: memoryview, element_type: ElementType) -> Tensor:
    """The payload's values, not copied; they must not be written to."""
    if not payload.nbytes:
        return torch.zeros(0, dtype=DTYPES[element_type])
    return torch.frombuffer(payload, dtype=DTYPES[element_type])


def is_finite(values: Tensor) -> bool:
    """False if a value is NaN or infinite, or float32 and so large that its square is.

    The one pass of a dot product costs a sixth of an update; a norm of 1e18 counts as not finite.
    """
    if values.dtype is torch.float32:
        return math.isfinite(torch.dot(values, values).item())
    return not values.is_floating_point() or bool(torch.isfinite(values).all())
