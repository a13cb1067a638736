"""Pooling by the root of the sum of squares."""

import torch
from torch import Tensor
from torch.nn import functional

from disttrain.parallel.layers.sliding import SlidingLayer
from disttrain.parallel.layers.windowed import View, pair, sliding


class L2Pool2d(SlidingLayer):
    """sqrt(eps + sum of squares over each window): Coates et al. 2013, section 3.

    Padding adds nothing. `eps` keeps the gradient finite where all is zero.
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
        eps: float = 1e-6,
    ) -> None:
        self._kernel = pair(kernel_size)
        self._stride = self._kernel if stride is None else pair(stride)
        super().__init__(*sliding(self._kernel, self._stride, pair(padding)))
        self.eps = eps

    def forward_window(self, x: Tensor, view: View) -> Tensor:
        del view
        total = functional.avg_pool2d(x.square(), self._kernel, self._stride, divisor_override=1)
        return torch.sqrt(total + self.eps)
