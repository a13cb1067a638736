"""Single precision on its way in half of the bits: bfloat16, rounded to nearest, ties to even.

Both sides keep float32; what is rounded is what one push or one fetch carries.
"""

import torch
from torch import Tensor

from disttrain.holder.values import bytes_of, tensor_of
from disttrain.transport.header import ElementType

_MARKED = torch.iinfo(torch.int16).min
"""The bits of -0.0."""


def narrow_gradient(gradient: Tensor, into: Tensor) -> None:
    """Round a gradient. The marks of parameters without one stay, and no other element gets one.

    A number that is too small for 16 bits becomes 0, which may be -0.0 by its rounding alone.
    """
    into.copy_(gradient)
    # On a GPU the question would wait for it.
    if into.is_cuda or (into.numel() and int(into.view(torch.int16).min()) == _MARKED):
        into.masked_fill_((into == 0) & (gradient != 0), 0.0)


class Narrowing:
    """Memory for one chunk on its way into a shard, and one on its way out."""

    def __init__(self) -> None:
        self._wide = torch.zeros(0)
        self._narrow = torch.zeros(0, dtype=torch.bfloat16)

    def received(self, payload: memoryview) -> Tensor:
        """The elements of a rounded gradient in single precision; until the next call."""
        sent = tensor_of(payload, ElementType.BFLOAT16)
        if len(self._wide) < len(sent):
            self._wide = torch.zeros(len(sent))
        return self._wide[: len(sent)].copy_(sent)

    def sent(self, payload: memoryview) -> memoryview:
        """The same elements of single precision, rounded; until the next call."""
        values = tensor_of(payload, ElementType.FLOAT32)
        if len(self._narrow) < len(values):
            self._narrow = torch.zeros(len(values), dtype=torch.bfloat16)
        return bytes_of(self._narrow[: len(values)].copy_(values))
