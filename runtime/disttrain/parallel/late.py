"""Products of a window that are computed while parts of it, or of its gradient, are on their way.

In forward a product begins with what is here, and takes the rest in when it has come.

In backward the gradients of parameters are computed meanwhile. Backward takes what is ready by when
forward made it, the latest first. What forward makes between the begin and the end of a fetch has
its backward there, too: after gradients of the window were sent, and before those of others are
waited for. Only the speed depends on that order.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from disttrain.parallel.array import Arriving, Partial, Place
from disttrain.parallel.communicator import Communicator

Parameters = Sequence[Tensor | None]
"""Weight and bias."""
MOST_AGAIN = 0.05
"""Of the outputs of a convolution: those at a border, which are computed a second time. They lie
apart in memory, and take longer than as many others."""


class Product(ABC):
    """A layer whose output is a sum of products of its input with a weight, and a bias."""

    @abstractmethod
    def forward(self, x: Tensor, parameters: Parameters) -> Tensor: ...

    def begun(self, x: Partial, parameters: Parameters) -> Tensor | None:
        """What `completed` goes on with; None if nothing should be computed before all is there."""
        del x, parameters
        return None

    def completed(self, y: Tensor, x: Partial, parameters: Parameters) -> Tensor:
        """The output, when the whole of `x` is there. It may be made in the memory of `y`."""
        raise NotImplementedError

    @abstractmethod
    def of_input(self, x: Tensor, parameters: Parameters, gradient: Tensor) -> Tensor: ...

    @abstractmethod
    def of_parameters(
        self, x: Tensor, parameters: Parameters, gradient: Tensor
    ) -> Sequence[Tensor | None]: ...


class LinearProduct(Product):
    """Of an array whose elements are the features; the output is (samples, features)."""

    def forward(self, x: Tensor, parameters: Parameters) -> Tensor:
        weight, bias = parameters
        assert weight is not None  # noqa: S101
        return functional.linear(x.flatten(1), weight, bias)

    def begun(self, x: Partial, parameters: Parameters) -> Tensor:
        return functional.linear(*self._at(x.here, x.tensor, parameters), parameters[1])

    def completed(self, y: Tensor, x: Partial, parameters: Parameters) -> Tensor:
        for place in x.to_come:
            part, weight = self._at(place, x.tensor, parameters)
            y.addmm_(part, weight.t())
        return y

    def of_input(self, x: Tensor, parameters: Parameters, gradient: Tensor) -> Tensor:
        weight, _ = parameters
        assert weight is not None  # noqa: S101
        return (gradient @ weight).view(x.shape)

    def of_parameters(
        self, x: Tensor, parameters: Parameters, gradient: Tensor
    ) -> Sequence[Tensor | None]:
        return gradient.t() @ x.flatten(1), None if parameters[1] is None else gradient.sum(0)

    @staticmethod
    def _at(place: Place, x: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Features there, and the weight's columns for them."""
        weight, _ = parameters
        assert weight is not None  # noqa: S101
        rows, columns = place
        own = weight.view(-1, *x.shape[1:])[:, :, rows, columns]
        return x[:, :, rows, columns].flatten(1), own.flatten(1)


@dataclass(frozen=True, slots=True)
class ConvolutionProduct(Product):
    """Over a window that is padded already."""

    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    def forward(self, x: Tensor, parameters: Parameters) -> Tensor:
        weight, bias = parameters
        assert weight is not None  # noqa: S101
        return functional.conv2d(x, weight, bias, self.stride, 0, self.dilation, self.groups)

    def begun(self, x: Partial, parameters: Parameters) -> Tensor | None:
        """All outputs, of which those that look at what is to come are wrong."""
        rows_of_all, columns_of_all = self._outputs(x.tensor, parameters)
        again = sum(
            _length(rows) * _length(columns) for (rows, columns), _ in self._again(x, parameters)
        )
        is_much = again > MOST_AGAIN * rows_of_all * columns_of_all
        return None if is_much else self.forward(x.tensor, parameters)

    def completed(self, y: Tensor, x: Partial, parameters: Parameters) -> Tensor:
        for (rows, columns), (above, beside) in self._again(x, parameters):
            y[:, :, rows, columns] = self.forward(x.tensor[:, :, above, beside], parameters)
        return y

    def _again(self, x: Partial, parameters: Parameters) -> Sequence[tuple[Place, Place]]:
        """Outputs that look at what is to come, and all that they look at."""
        found = []
        sizes, reaches = self._outputs(x.tensor, parameters), self._reaches(parameters)
        for place in x.to_come:
            rows, columns = (
                _looking_at(place[each], self.stride[each], reaches[each], sizes[each])
                for each in range(2)
            )
            if _length(rows[0]) and _length(columns[0]):
                found.append(((rows[0], columns[0]), (rows[1], columns[1])))
        return found

    def _outputs(self, x: Tensor, parameters: Parameters) -> tuple[int, int]:
        """Rows and columns."""
        reaches = self._reaches(parameters)
        rows, columns = ((x.shape[2 + e] - reaches[e] - 1) // self.stride[e] + 1 for e in range(2))
        return rows, columns

    def _reaches(self, parameters: Parameters) -> tuple[int, int]:
        """How far an output's last row and column lie behind its first ones."""
        weight, _ = parameters
        assert weight is not None  # noqa: S101
        rows, columns = (self.dilation[e] * (weight.shape[2 + e] - 1) for e in range(2))
        return rows, columns

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


def _looking_at(place: slice, stride: int, reach: int, outputs: int) -> tuple[slice, slice]:
    """Outputs along a dimension whose windows meet a place, and what they look at."""
    first = max(0, -((reach - place.start) // stride))
    end = max(first, min(outputs, (place.stop - 1) // stride + 1))
    return slice(first, end), slice(first * stride, (end - 1) * stride + reach + 1)


def _length(place: slice) -> int:
    return int(place.stop) - int(place.start)


def applied(
    product: Product, arriving: Arriving, parameters: Parameters, peers: Communicator
) -> Tensor:
    """The product of a window that was asked for, of which nobody has waited yet."""
    if not peers.overlaps or not arriving.crosses or not _is_ours(parameters):
        return product.forward(arriving.wait(), parameters)
    late = _Late(product)
    token = _OfParameters.apply(late, *parameters)
    late.begin(arriving.partial, _detached(parameters))
    found: Tensor = _OfInput.apply(arriving.wait(), token, late, *_detached(parameters))
    return found


def _is_ours(parameters: Parameters) -> bool:
    """Whether autograd may leave the gradients to us."""
    return (
        all(each is None or each.requires_grad for each in parameters)
        # Types of elements are changed there, which backward would have to do as well.
        and not torch.is_autocast_enabled("cpu")
        and not torch.is_autocast_enabled("cuda")
    )


def _detached(parameters: Parameters) -> Parameters:
    return [None if each is None else each.detach() for each in parameters]


class _Late:
    """One call."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self._begun: tuple[Tensor, Partial] | None = None
        self.find: Callable[[], Sequence[Tensor | None]] | None = None
        """The gradients of parameters, once that of the output is known."""

    @torch.no_grad()
    def begin(self, partial: Partial | None, parameters: Parameters) -> None:
        y = None if partial is None else self.product.begun(partial, parameters)
        self._begun = None if partial is None or y is None else (y, partial)

    def output(self, x: Tensor, parameters: Parameters) -> Tensor:
        """Of the whole window."""
        begun, self._begun = self._begun, None
        if begun is None:
            return self.product.forward(x, parameters)
        return self.product.completed(*begun, parameters)


class _OfInput(Function):
    """The product, and the gradient of its input."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, token: Tensor, late: _Late, *parameters: Tensor | None
    ) -> Tensor:
        del token
        ctx.late = late  # type: ignore[attr-defined]
        ctx.save_for_backward(x, *parameters)  # type: ignore[arg-type]  # It takes None, too.
        return late.output(x, parameters)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *parameters = ctx.saved_tensors  # type: ignore[attr-defined]
        late = ctx.late  # type: ignore[attr-defined]
        late.find = lambda: late.product.of_parameters(x, parameters, gradient)
        found = None
        if ctx.needs_input_grad[0]:  # type: ignore[attr-defined]
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
