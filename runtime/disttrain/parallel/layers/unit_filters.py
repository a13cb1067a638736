"""Locally connected filters of unit norm, whose transpose gives their input back."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from disttrain.parallel.layers.fields import Fields
from disttrain.parallel.layers.local import LocallyConnected2d, LocalProduct
from disttrain.parallel.layers.windowed import View, Windowed
from disttrain.parallel.windows import Box, Span


class ReconstructionTarget(Windowed):
    """Marks what the filters behind it have to give back; what comes out is what goes in.

    `alpha`: by what a reconstruction is multiplied, the scalar of Coates et al. 2013, equation 1.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((), alpha))

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        return height, width

    def input_window(self, output: Box) -> Box:
        return output

    def forward_window(self, x: Tensor, view: View) -> Tensor:
        del view
        return x


class UnitProduct(LocalProduct):
    """With filters W = V / |V|. A response is divided by the norm, so that V is not copied."""

    def scaled(self, y: Tensor, weight: Tensor) -> Tensor:
        return y / _norms(weight)

    def of_matrices(self, gradient: Tensor, weight: Tensor) -> Tensor:
        """Of V: what of the gradient of W is at a right angle to it, divided by the norm."""
        along = (gradient * weight).sum(3, keepdim=True) / _norms(weight).square()
        return gradient.addcmul_(along, weight, value=-1.0)


def _norms(weight: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(weight, dim=3, keepdim=True)
    return norms


class UnitFilters2d(LocallyConnected2d):
    """Linear filters W = V / |V|, of which `weight` has V: Coates et al. 2013, section 3."""

    _kind = UnitProduct

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        *,
        input_size: tuple[int, int],
        stride: int | tuple[int, int] = 1,
        block: int | tuple[int, int] = 1,
    ) -> None:
        """As of `LocallyConnected2d`, without a bias and padding."""
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            input_size=input_size,
            stride=stride,
            block=block,
            bias=False,
        )

    def reset_parameters(self) -> None:
        """Any direction is as likely as any other."""
        nn.init.normal_(self.weight, std=math.prod(self.weight.shape[3:]) ** -0.5)

    def transposed_window(self, y: Tensor, window: Box) -> Tensor:
        """W transposed times responses, onto the input window that they came from."""
        size = window.rows.length, window.columns.length
        return self._product.transposed(
            y, self.weight, Fields(self.kernel_size, self.stride, *size)
        )

    def transposed(self, y: Tensor) -> Tensor:
        """Of the undivided layer."""
        height, width = self.input_size
        reached = self.input_window(Box(Span(0, y.shape[2]), Span(0, y.shape[3])))
        found = self.transposed_window(y, reached)
        beyond = width - reached.columns.end, height - reached.rows.end
        return functional.pad(found, (0, beyond[0], 0, beyond[1]))
