"""Layers of torch whose kernel slides over rows and columns: convolution and pooling."""

from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from disttrain.parallel.late import ConvolutionProduct
from disttrain.parallel.layers.windowed import Sliding, View, Windowed, pair, sliding
from disttrain.parallel.windows import Box


class SlidingLayer(Windowed):
    """A kernel that slides over both dimensions."""

    def __init__(self, rows: Sliding, columns: Sliding) -> None:
        super().__init__()
        self.rows, self.columns = rows, columns

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        return self.rows.length(height), self.columns.length(width)

    def input_window(self, output: Box) -> Box:
        return Box(self.rows.needs(output.rows), self.columns.needs(output.columns))


class Convolution(SlidingLayer):
    """A Conv2d, whose filters all partitions have."""

    def __init__(self, module: nn.Conv2d) -> None:
        kernel, stride = pair(module.kernel_size), pair(module.stride)
        dilation = pair(module.dilation)
        around = [_padding(module, dimension) for dimension in range(2)]
        super().__init__(
            *(
                Sliding(kernel[each], stride[each], *around[each], dilation=dilation[each])
                for each in range(2)
            )
        )
        self.weight, self.bias = module.weight, module.bias
        self._product = self.product = ConvolutionProduct(stride, dilation, module.groups)

    def output_channels(self, channels: int) -> int:
        del channels
        return self.weight.shape[0]

    def forward_window(self, x: Tensor, view: View) -> Tensor:
        del view
        return self._product.forward(x, (self.weight, self.bias))


def _padding(module: nn.Conv2d, dimension: int) -> tuple[int, int]:
    if module.padding == "valid":
        return 0, 0
    reach = pair(module.dilation)[dimension] * (pair(module.kernel_size)[dimension] - 1)
    if module.padding == "same":
        return reach // 2, reach - reach // 2
    each = pair(cast("tuple[int, int]", module.padding))[dimension]
    return each, each


class MaxPooling(SlidingLayer):
    """A MaxPool2d. What lies beyond the array is never the largest."""

    padding_value = float("-inf")

    def __init__(self, module: nn.MaxPool2d) -> None:
        self._kernel = pair(module.kernel_size)
        self._stride = pair(module.stride)
        self._dilation = pair(module.dilation)
        padding, ceil = pair(module.padding), module.ceil_mode
        super().__init__(*sliding(self._kernel, self._stride, padding, self._dilation, ceil=ceil))

    def forward_window(self, x: Tensor, view: View) -> Tensor:
        del view
        return functional.max_pool2d(x, self._kernel, self._stride, 0, self._dilation)


class AveragePooling(SlidingLayer):
    """An AvgPool2d, which divides as torch does where a kernel reaches beyond the array."""

    def __init__(self, module: nn.AvgPool2d) -> None:
        self._kernel, self._stride = pair(module.kernel_size), pair(module.stride)
        padding, ceil = pair(module.padding), module.ceil_mode
        self._padding_counts = module.count_include_pad
        self._divisor = module.divisor_override
        super().__init__(*sliding(self._kernel, self._stride, padding, ceil=ceil))

    def forward_window(self, x: Tensor, view: View) -> Tensor:
        total = functional.avg_pool2d(x, self._kernel, self._stride, divisor_override=1)
        if self._divisor is not None:
            return total / self._divisor
        counts = self._padding_counts
        rows = self.rows.real(view.output.rows, view.height, padding_counts=counts)
        columns = self.columns.real(view.output.columns, view.width, padding_counts=counts)
        return total / (rows[:, None] * columns).to(total)
