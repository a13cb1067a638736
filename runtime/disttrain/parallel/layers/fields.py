"""Receptive fields beside each other, for batched dense products: Coates et al. 2013, section 4.1.

Samples are the last dimension, so that what is copied lies together.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx


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


def gathered(x: Tensor, fields: Fields) -> Tensor:
    """(samples, channels, height, width) to (fields, elements of one, samples). Under autograd."""
    found: Tensor = _Gather.apply(x, fields)
    return found


def added(x: Tensor, fields: Fields) -> Tensor:
    """The transpose of `gathered`: each place has the sum of what fields have there."""
    found: Tensor = _Add.apply(x, fields)
    return found


class _Gather(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, fields: Fields) -> Tensor:
        ctx.fields = fields  # type: ignore[attr-defined]
        return _gathered(x, fields)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        return added(gradient, ctx.fields), None  # type: ignore[attr-defined]


class _Add(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, fields: Fields) -> Tensor:
        ctx.fields = fields  # type: ignore[attr-defined]
        return _added(x, fields)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        return gathered(gradient, ctx.fields), None  # type: ignore[attr-defined]


def _gathered(x: Tensor, fields: Fields) -> Tensor:
    channels = x.shape[1]
    image = x.permute(1, 2, 3, 0).contiguous()
    views = image.unfold(1, fields.kernel[0], fields.stride[0])
    views = views.unfold(2, fields.kernel[1], fields.stride[1])
    # (channels, field rows, field columns, samples, kernel rows, kernel columns)
    rows, columns = fields.counts
    size = channels * fields.kernel[0] * fields.kernel[1]
    return views.permute(1, 2, 0, 4, 5, 3).reshape(rows * columns, size, len(x))


def _added(x: Tensor, fields: Fields) -> Tensor:
    """Fields are cut into tiles of a stride; tiles of the same place in each do not overlap."""
    (rows, columns), (high, wide), (down, right) = fields.counts, fields.kernel, fields.stride
    samples = x.shape[2]
    parts = x.view(rows, columns, -1, high, wide, samples)
    tiles = rows + -(-high // down) - 1, columns + -(-wide // right) - 1
    channels = parts.shape[2]
    found = x.new_zeros(tiles[0], tiles[1], channels, down, right, samples)
    for top in range(0, high, down):
        for left in range(0, wide, right):
            part = parts[:, :, :, top : top + down, left : left + right]
            row, column = top // down, left // right
            found[
                row : row + rows, column : column + columns, :, : part.shape[3], : part.shape[4]
            ].add_(part)
    image = found.permute(5, 2, 0, 3, 1, 4)
    image = image.reshape(samples, channels, tiles[0] * down, tiles[1] * right)
    return _of_size(image, fields.height, fields.width)


def _of_size(image: Tensor, height: int, width: int) -> Tensor:
    """What fields do not reach is 0; what tiles reach beyond the image is 0 already."""
    right, below = width - image.shape[3], height - image.shape[2]
    if right > 0 or below > 0:
        image = torch.nn.functional.pad(image, (0, max(0, right), 0, max(0, below)))
    return image[:, :, :height, :width]
