"""Receptive fields over an image, for batched dense products: Coates et al. 2013, section 4.1.

What a row of fields looks at is a strip of the image. It is copied once, column after column, so
that each of its fields lies in one piece there, a stride behind the one before. So a place of the
image is copied as often as it is in rows of fields, not as often as it is in fields. Samples are
the last dimension, so that what is copied lies together.

On a CPU the products of one row of fields after the other read them where they lie. A GPU is fast
at few large products: there torch copies all fields beside each other first, each place as often as
it is in fields.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.nn import functional


class Fields(NamedTuple):
    """Fields over an image, one every `stride` rows and columns."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    height: int
    """Of the image."""
    width: int

    @property
    def counts(self) -> tuple[int, int]:
        """How many there are, downwards and sideways."""
        (rows, columns), (down, right) = self.kernel, self.stride
        return (self.height - rows) // down + 1, (self.width - columns) // right + 1


def responses(weight: Tensor, x: Tensor, fields: Fields) -> Tensor:
    """W X of each field: (rows, columns, neurons, samples) of fields. Under autograd.

    `weight`: (rows, columns, neurons, kernel columns * channels * kernel rows). `x`: (samples,
    channels, height, width).
    """
    found: Tensor = _Responses.apply(*_as_autocast(weight, x), fields)
    return found


def transposed(weight: Tensor, y: Tensor, fields: Fields) -> Tensor:
    """W^T Y, added up to an image where fields overlap. Under autograd. Shapes: as above."""
    found: Tensor = _Transposed.apply(*_as_autocast(weight, y), fields)
    return found


def weight_gradient(y: Tensor, x: Tensor, fields: Fields) -> Tensor:
    """Y X^T of each field, for the gradient of `responses` in Y. Under autograd."""
    found: Tensor = _Outer.apply(y, x, fields)
    return found


def _as_autocast(*tensors: Tensor) -> Sequence[Tensor]:
    """In the type that a region of autocast has products in: torch does not look in here.

    As torch does, it leaves doubles alone.
    """
    device = tensors[0].device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return tensors
    if any(each.dtype is torch.float64 for each in tensors):
        return tensors
    return [each.to(torch.get_autocast_dtype(device)) for each in tensors]


# Each of the three products below has the other two as its gradients.


def _kept(ctx: FunctionCtx, one: Tensor, other: Tensor, fields: Fields) -> None:
    ctx.save_for_backward(one, other)
    ctx.fields = fields  # type: ignore[attr-defined]


class _Responses(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, weight: Tensor, x: Tensor, fields: Fields) -> Tensor:
        _kept(ctx, weight, x, fields)
        return _products(weight, strips(x, fields), fields)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (weight, x), fields = ctx.saved_tensors, ctx.fields  # type: ignore[attr-defined]
        of_weight, of_x = ctx.needs_input_grad[:2]  # type: ignore[attr-defined]
        return (
            _Outer.apply(gradient, x, fields) if of_weight else None,
            _Transposed.apply(weight, gradient, fields) if of_x else None,
            None,
        )


class _Transposed(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, weight: Tensor, y: Tensor, fields: Fields) -> Tensor:
        _kept(ctx, weight, y, fields)
        return image(_spread(weight, y, fields), fields)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (weight, y), fields = ctx.saved_tensors, ctx.fields  # type: ignore[attr-defined]
        of_weight, of_y = ctx.needs_input_grad[:2]  # type: ignore[attr-defined]
        return (
            _Outer.apply(y, gradient, fields) if of_weight else None,
            _Responses.apply(weight, gradient, fields) if of_y else None,
            None,
        )


class _Outer(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, y: Tensor, x: Tensor, fields: Fields) -> Tensor:
        _kept(ctx, y, x, fields)
        return _outer(y, strips(x, fields), fields)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (y, x), fields = ctx.saved_tensors, ctx.fields  # type: ignore[attr-defined]
        of_y, of_x = ctx.needs_input_grad[:2]  # type: ignore[attr-defined]
        return (
            _Responses.apply(gradient, x, fields) if of_y else None,
            _Transposed.apply(gradient, y, fields) if of_x else None,
            None,
        )


def strips(x: Tensor, fields: Fields) -> Tensor:
    """(samples, channels, height, width) as (rows of fields, width, part of a column, samples)."""
    (high, _), (down, _) = fields.kernel, fields.stride
    found = samples_last(x).unfold(1, high, down).permute(1, 2, 0, 4, 3)
    # Of one channel, or of kernels of one row, reshape copies nothing.
    part = x.shape[1] * high
    return found.reshape(fields.counts[0], fields.width, part, len(x)).contiguous()


def samples_last(x: Tensor) -> Tensor:
    """(channels, height, width, samples)."""
    return x.permute(1, 2, 3, 0).contiguous()


def samples_first(x: Tensor) -> Tensor:
    """The inverse. Torch turns a matrix faster than it permutes dimensions."""
    return x.flatten(0, 2).t().contiguous().view(x.shape[3], *x.shape[:3])


def image(laid: Tensor, fields: Fields) -> Tensor:
    """The transpose of `strips`: each place has the sum of what strips have there."""
    (rows, _), high, down = fields.counts, fields.kernel[0], fields.stride[0]
    samples = laid.shape[3]
    channels = laid.shape[2] // high
    parts = laid.view(rows, fields.width, channels, high, samples)
    # Cut into tiles of a stride: those of the same place in each strip do not overlap.
    tiles = rows + -(-high // down) - 1
    found = laid.new_zeros(tiles, fields.width, channels, down, samples)
    for place, top in enumerate(range(0, high, down)):
        part = parts[:, :, :, top : top + down]
        found[place : place + rows, :, :, : part.shape[3]].add_(part)
    found = found.permute(2, 0, 3, 1, 4).reshape(channels, tiles * down, fields.width, samples)
    found = samples_first(found)
    # What strips do not reach is 0; what tiles reach beyond the image is 0 already.
    found = functional.pad(found, (0, 0, 0, max(0, fields.height - tiles * down)))
    return found[:, :, : fields.height]


def _fields_of(laid: Tensor, fields: Fields) -> Tensor:
    """(rows, columns, elements of a field, samples), where they lie. They overlap."""
    _, width, part, samples = laid.shape
    (rows, columns), wide, right = fields.counts, fields.kernel[1], fields.stride[1]
    strides = width * part * samples, right * part * samples, samples, 1
    return laid.as_strided((rows, columns, wide * part, samples), strides)


def _read_where_they_lie(x: Tensor) -> bool:
    return x.device.type == "cpu"


def _products(weight: Tensor, laid: Tensor, fields: Fields) -> Tensor:
    """W X."""
    every = _fields_of(laid, fields)
    if not _read_where_they_lie(laid):
        return weight @ every
    found = laid.new_empty(*weight.shape[:3], laid.shape[3])
    for own, x, y in zip(weight, every, found, strict=True):
        torch.bmm(own, x, out=y)
    return found


def _outer(y: Tensor, laid: Tensor, fields: Fields) -> Tensor:
    """Y X^T."""
    every = _fields_of(laid, fields)
    if not _read_where_they_lie(laid):
        return y @ every.transpose(2, 3)
    found = laid.new_empty(*y.shape[:3], every.shape[2])
    for own, x, into in zip(y, every, found, strict=True):
        torch.bmm(own, x.transpose(1, 2), out=into)
    return found


def _spread(weight: Tensor, y: Tensor, fields: Fields) -> Tensor:
    """W^T Y, added up in strips."""
    (rows, _), wide, right = fields.counts, fields.kernel[1], fields.stride[1]
    part, samples = weight.shape[3] // wide, y.shape[3]
    found = y.new_zeros(rows, fields.width, part, samples)
    every = _fields_of(found, fields)
    turned = weight.transpose(2, 3)
    parts = None if _read_where_they_lie(y) else turned @ y
    # Of so many fields beside each other the first and the next one do not overlap.
    apart = -(-wide // right)
    for first in range(apart):
        some = slice(first, None, apart)
        if parts is not None:
            every[:, some].add_(parts[:, some])
            continue
        for into, own, given in zip(every, turned, y, strict=True):
            if first < len(given):
                torch.baddbmm(into[some], own[some], given[some], out=into[some])
    return found
