"""Gradients of parameters that are computed while those of a window are on their way.

Backward takes what is ready by when forward made it, the latest first. What forward makes between
the begin and the end of a fetch has its backward there, too: after gradients of the window were
sent, and before those of others are waited for. Only the speed depends on that order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from disttrain.parallel.array import Arriving
from disttrain.parallel.communicator import Communicator

Parameters = Sequence[Tensor | None]
"""Weight and bias."""


class Product(Protocol):
    """A layer whose output is a sum of products of its input with a weight, and a bias."""

    def forward(self, x: Tensor, parameters: Parameters) -> Tensor: ...

    def of_input(self, x: Tensor, parameters: Parameters, gradient: Tensor) -> Tensor: ...

    def of_parameters(
        self, x: Tensor, parameters: Parameters, gradient: Tensor
    ) -> Sequence[Tensor | None]: ...


class LinearProduct:
    """With features in the last dimension."""

    def forward(self, x: Tensor, parameters: Parameters) -> Tensor:
        weight, bias = parameters
        assert weight is not None  # noqa: S101
        return functional.linear(x, weight, bias)

    def of_input(self, x: Tensor, parameters: Parameters, gradient: Tensor) -> Tensor:
        del x
        weight, _ = parameters
        assert weight is not None  # noqa: S101
        return gradient @ weight

    def of_parameters(
        self, x: Tensor, parameters: Parameters, gradient: Tensor
    ) -> Sequence[Tensor | None]:
        return gradient.t() @ x, None if parameters[1] is None else gradient.sum(0)


@dataclass(frozen=True, slots=True)
class ConvolutionProduct:
    """Over a window that is padded already."""

    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    def forward(self, x: Tensor, parameters: Parameters) -> Tensor:
        weight, bias = parameters
        assert weight is not None  # noqa: S101
        return functional.conv2d(x, weight, bias, self.stride, 0, self.dilation, self.groups)

    def of_input(self, x: Tensor, parameters: Parameters, gradient: Tensor) -> Tensor:
        found = self._backward(x, parameters, gradient, (True, False, False))[0]
        assert found is not None  # noqa: S101
        return found

    def of_parameters(
        self, x: Tensor, parameters: Parameters, gradient: Tensor
    ) -> Sequence[Tensor | None]:
        has_bias = parameters[1] is not None
        return self._backward(x, parameters, gradient, (False, True, has_bias))[1:]

    def _backward(
        self, x: Tensor, parameters: Parameters, gradient: Tensor, wanted: tuple[bool, bool, bool]
    ) -> Sequence[Tensor | None]:
        found: Sequence[Tensor | None] = torch.ops.aten.convolution_backward(
            *(gradient, x, parameters[0], None if not wanted[2] else [gradient.shape[1]]),
            *(self.stride, (0, 0), self.dilation, False, (0, 0), self.groups, wanted),
        )
        return found


def applied(
    product: Product, arriving: Arriving, parameters: Parameters, peers: Communicator
) -> Tensor:
    """The product of a window that was asked for, of which nobody has waited yet."""
    is_late = (
        peers.overlaps
        and arriving.has_gradient
        and all(each is None or each.requires_grad for each in parameters)
        # Types of elements are changed there, which backward would have to do as well.
        and not torch.is_autocast_enabled("cpu")
        and not torch.is_autocast_enabled("cuda")
    )
    if not is_late:
        return product.forward(arriving.wait(), parameters)
    late = _Late(product)
    token = _OfParameters.apply(late, *parameters)
    found: Tensor = _OfInput.apply(arriving.wait(), token, late, *_detached(parameters))
    return found


def _detached(parameters: Parameters) -> Parameters:
    return [None if each is None else each.detach() for each in parameters]


class _Late:
    """One call."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self.find: Callable[[], Sequence[Tensor | None]] | None = None
        """The gradients of parameters, once that of the output is known."""


class _OfInput(Function):
    """The product, and the gradient of its input."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, token: Tensor, late: _Late, *parameters: Tensor | None
    ) -> Tensor:
        del token
        ctx.late = late  # type: ignore[attr-defined]
        ctx.save_for_backward(x, *parameters)  # type: ignore[arg-type]  # It takes None, too.
        return late.product.forward(x, parameters)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *parameters = ctx.saved_tensors  # type: ignore[attr-defined]
        late = ctx.late  # type: ignore[attr-defined]
        late.find = lambda: late.product.of_parameters(x, parameters, gradient)
        found = late.product.of_input(x, parameters, gradient)
        return found, gradient.new_zeros(0), None, *(None for _ in parameters)


class _OfParameters(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, late: _Late, *parameters: Tensor | None) -> Tensor:
        ctx.late = late  # type: ignore[attr-defined]
        assert parameters[0] is not None  # noqa: S101
        return parameters[0].new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, token: Tensor) -> tuple[Tensor | None, ...]:
        del token
        late = ctx.late  # type: ignore[attr-defined]
        find, late.find = late.find, None
        return None, *find()
