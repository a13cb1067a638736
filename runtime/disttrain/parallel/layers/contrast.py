"""Local contrast normalisation."""

import torch
from torch import Tensor
from torch.nn import functional

from disttrain.parallel.array import padded
from disttrain.parallel.layers.windowed import Sliding, View, Windowed, pair
from disttrain.parallel.windows import Box, whole


class LocalContrastNorm2d(Windowed):
    """Subtract the mean of the neighbourhood, and divide by its deviation.

    v = x - mean(x); y = v / sqrt(eps + mean(v^2)), where a mean is over all channels and the
    elements of the window that are in the array: Jarrett et al. 2009, with even weights.
    """

    def __init__(self, kernel_size: int | tuple[int, int], eps: float = 1e-4) -> None:
        """`kernel_size` is odd: the window's middle is the element itself."""
        super().__init__()
        self.kernel_size = pair(kernel_size)
        if not all(size % 2 for size in self.kernel_size):
            message = f"kernel_size: must be odd, got {self.kernel_size}"
            raise ValueError(message)
        self.eps = eps
        rows, columns = (Sliding(size, 1, size // 2, size // 2) for size in self.kernel_size)
        self._rows, self._columns = rows, columns

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        return height, width

    def input_window(self, output: Box) -> Box:
        # The mean of squares is of elements whose own mean is subtracted.
        return self._around(self._around(output))

    def forward_window(self, x: Tensor, view: View) -> Tensor:
        wider = self._around(view.output)
        inside = wider.meets(whole(view.height, view.width))
        rows, columns = inside.within(view.input)
        v = x[:, :, rows, columns] - self._mean(x, view.input, inside, view)
        square = padded(v.square(), inside, wider, 0.0)
        rows, columns = view.output.within(inside)
        mean = self._mean(square, wider, view.output, view)
        return v[:, :, rows, columns] / torch.sqrt(mean + self.eps)

    def _around(self, box: Box) -> Box:
        return Box(self._rows.needs(box.rows), self._columns.needs(box.columns))

    def _mean(self, x: Tensor, has: Box, of: Box, view: View) -> Tensor:
        """Around each element of a window; what `x` has beyond the array is 0."""
        rows, columns = self._around(of).within(has)
        part = x[:, :, rows, columns].sum(dim=1, keepdim=True)
        total = functional.avg_pool2d(part, self.kernel_size, 1, divisor_override=1)
        counted = [
            sliding.real(span, length, padding_counts=False)
            for sliding, span, length in (
                (self._rows, of.rows, view.height),
                (self._columns, of.columns, view.width),
            )
        ]
        return total / (x.shape[1] * counted[0][:, None] * counted[1]).to(total)
