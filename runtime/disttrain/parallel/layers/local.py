"""Locally connected layers: every place has filters of its own."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from disttrain.parallel.late import Parameters, Product
from disttrain.parallel.layers import fields
from disttrain.parallel.layers.fields import Fields
from disttrain.parallel.layers.windowed import View, Windowed, pair, sliding
from disttrain.parallel.windows import Box, Span


@dataclass(frozen=True, slots=True)
class LocalProduct(Product):
    """Of a padded window with untied filters. Backward lays the window's strips anew."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    block: tuple[int, int]

    def forward(self, x: Tensor, parameters: Parameters) -> Tensor:
        weight, bias = _matrices(parameters[0]), parameters[1]
        y = self.arranged(self.scaled(fields.responses(weight, x, self.fields(x)), weight))
        return y if bias is None else y + bias

    def of_input(self, x: Tensor, parameters: Parameters, gradient: Tensor) -> Tensor:
        return self.transposed(gradient, parameters[0], self.fields(x))

    def of_parameters(
        self, x: Tensor, parameters: Parameters, gradient: Tensor
    ) -> Sequence[Tensor | None]:
        weight, bias = parameters
        assert weight is not None  # noqa: S101
        matrices = _matrices(weight)
        y = self.scaled(self.in_blocks(gradient, matrices), matrices)
        found = self.of_matrices(fields.weight_gradient(y, x, self.fields(x)), matrices)
        return found.view_as(weight), None if bias is None else gradient.sum(0)

    def transposed(self, y: Tensor, weight: Tensor | None, of: Fields) -> Tensor:
        """The image to which the layer's filters add up responses (samples, channels, ...)."""
        matrices = _matrices(weight)
        return fields.transposed(matrices, self.scaled(self.in_blocks(y, matrices), matrices), of)

    def of_matrices(self, gradient: Tensor, weight: Tensor) -> Tensor:
        """The gradient of `weight`, from that of the filters that responses are products with."""
        del weight
        return gradient

    def scaled(self, y: Tensor, weight: Tensor) -> Tensor:
        """Responses, or their gradients, of which the filters are not `weight` itself."""
        del weight
        return y

    def fields(self, x: Tensor) -> Fields:
        return Fields(self.kernel, self.stride, x.shape[2], x.shape[3])

    def arranged(self, y: Tensor) -> Tensor:
        """(block rows, block columns, neurons, samples) as (samples, channels, rows, columns)."""
        rows, columns, neurons, samples = y.shape
        height, width = self.block
        deep = neurons // (height * width)
        y = y.reshape(rows, columns, deep, height, width, samples).permute(2, 0, 3, 1, 4, 5)
        return fields.samples_first(y.reshape(deep, rows * height, columns * width, samples))

    def in_blocks(self, y: Tensor, weight: Tensor) -> Tensor:
        """The inverse of `arranged`."""
        rows, columns, neurons, _ = weight.shape
        height, width = self.block
        deep = y.shape[1]
        last = fields.samples_last(y).view(deep, rows, height, columns, width, len(y))
        return last.permute(1, 3, 0, 2, 4, 5).reshape(rows, columns, neurons, len(y))


def _matrices(weight: Tensor | None) -> Tensor:
    """(block rows, block columns, neurons, fan-in)."""
    assert weight is not None  # noqa: S101
    return weight.flatten(3)


class LocallyConnected2d(Windowed):
    """Untied filters with block local connectivity: Coates et al. 2013, section 4.1.

    The neurons of a block (`block` rows and columns, `out_channels` deep) share one receptive field
    of `kernel_size`; the next block's lies `stride` further. So the output has as many rows as
    there are blocks, times the rows of one. Of each block forward is one dense product
    Y_F = W_F X_F, and so are both gradients. With `block` 1 every place has its own field.

    `weight`: (block rows, block columns, out_channels * rows * columns of a block, kernel columns,
    in_channels, kernel rows), as products read a field; `filters` has the usual order. `bias`:
    (out_channels, output rows, output columns).
    """

    _kind = LocalProduct

    def __init__(  # noqa: PLR0913  As torch's layers.
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        *,
        input_size: tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        block: int | tuple[int, int] = 1,
        bias: bool = True,
    ) -> None:
        """`input_size`: rows and columns, which the number of filters goes by."""
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = pair(kernel_size), pair(stride)
        self.input_size, self.block = input_size, pair(block)
        self.padding = pair(padding)
        self._rows, self._columns = sliding(self.kernel_size, self.stride, self.padding)
        self.unit = self.block
        self._product = self.product = self._kind(self.kernel_size, self.stride, self.block)
        blocks = self._rows.length(input_size[0]), self._columns.length(input_size[1])
        if min(blocks) < 1:
            message = f"kernel_size: {self.kernel_size} is larger than the padded {input_size}"
            raise ValueError(message)
        neurons, (rows, columns) = out_channels * math.prod(self.block), self.kernel_size
        self.weight = nn.Parameter(torch.empty(*blocks, neurons, columns, in_channels, rows))
        size = blocks[0] * self.block[0], blocks[1] * self.block[1]
        self.bias = nn.Parameter(torch.empty(out_channels, *size)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As torch's layers: uniform within one over the root of the number of inputs."""
        bound = 1.0 / math.sqrt(math.prod(self.weight.shape[3:]))
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        if (height, width) != self.input_size:
            message = f"its filters are for an input of {self.input_size}, got {height, width}"
            raise ValueError(message)
        return (
            self._rows.length(height) * self.block[0],
            self._columns.length(width) * self.block[1],
        )

    def output_channels(self, channels: int) -> int:
        del channels
        return self.out_channels

    def input_window(self, output: Box) -> Box:
        rows, columns = self.blocks(output)
        return Box(self._rows.needs(rows), self._columns.needs(columns))

    def blocks(self, output: Box) -> tuple[Span, Span]:
        """Rows and columns of blocks that an output window consists of."""
        (rows, columns), (height, width) = output, self.block
        return (
            Span(rows.first // height, -(-rows.end // height)),
            Span(columns.first // width, -(-columns.end // width)),
        )

    def part(self, output: Box) -> "LocallyConnected2d":
        found = copy.copy(self)
        found._parameters = dict(self._parameters)  # noqa: SLF001  A copy has the same table.
        for name, parameter in self.named_parameters():
            own = parameter.detach()[self.place_of(name, output)].clone()
            found.register_parameter(name, nn.Parameter(own, parameter.requires_grad))
        return found

    def place_of(self, name: str, output: Box) -> tuple[slice, ...]:
        if name == "bias":
            return slice(None), slice(*output.rows), slice(*output.columns)
        rows, columns = self.blocks(output)
        return slice(*rows), slice(*columns)

    def forward_window(self, x: Tensor, view: View) -> Tensor:
        del view
        return self._product.forward(x, (self.weight, self.bias))

    def filters(self) -> Tensor:
        """A view of `weight`, whose last dimensions are channels, rows and columns of a kernel."""
        return self.weight.permute(0, 1, 2, 4, 5, 3)
