"""One partition's side of each kind of layer.

Each has the parameters of the undivided layer under the same names: all of them, a part, or none.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.func import functional_call

from disttrain.parallel.array import DistributedArray, Everywhere, assembled
from disttrain.parallel.communicator import Communicator, summed, tied
from disttrain.parallel.late import LinearProduct, applied
from disttrain.parallel.layers.dropout import HashDropout
from disttrain.parallel.layers.unit_filters import UnitFilters2d
from disttrain.parallel.layers.windowed import View, Windowed
from disttrain.parallel.windows import NOTHING, Box, Span, Windows, on_all

Index = tuple[slice, ...]
_NARROW = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Value:
    """What goes from layer to layer."""

    array: DistributedArray | Everywhere
    is_flat: bool = False
    """Undivided it would be (samples, features), not (samples, channels, height, width)."""

    @classmethod
    def of_input(cls, x: Tensor, peers: Communicator) -> "Value":
        """Samples that every partition has: images, or features."""
        is_flat = x.dim() == 2
        return cls(Everywhere(x[:, None, :, None] if is_flat else x, peers), is_flat)

    def whole(self, tensor: Tensor) -> Tensor:
        """The undivided shape of a tensor of the whole array."""
        return tensor.flatten(1) if self.is_flat else tensor

    def replaced(self, tensor: Tensor) -> "Value":
        """With other numbers in the same places."""
        array = self.array
        if isinstance(array, Everywhere):
            return Value(Everywhere(tensor, array.peers), self.is_flat)
        found = DistributedArray(tensor, array.windows, array.height, array.width, array.peers)
        return Value(found, self.is_flat)

    @property
    def windows(self) -> Windows:
        array = self.array
        if isinstance(array, Everywhere):
            return on_all(array.peers.size, array.height, array.width)
        return array.windows


class PartitionedLayer(nn.Module):
    """From the value before a layer to the one behind it."""

    is_tied: bool = False
    """Whether all partitions have its parameters, whose gradients are summed."""

    def __init__(self, peers: Communicator, called: nn.Module | None = None) -> None:
        """`called`: a module that computes with what this one has, and is no child of it."""
        super().__init__()
        self.peers = peers
        self._called = called if called is None else (called,)
        self.pieces: dict[str, Index | None] = {}
        """Where each parameter's own part lies in the whole one; None: it is all of it."""
        self.tied: dict[str, Tensor] = {}
        """During a pass: what stands for parameters whose gradients are summed."""

    @abstractmethod
    def forward(self, value: Value) -> Value: ...

    @property
    def called(self) -> nn.Module:
        assert self._called is not None  # noqa: S101  Who asks has one.
        return self._called[0]

    def train(self, mode: bool = True) -> "PartitionedLayer":  # noqa: FBT001, FBT002  As torch's.
        if self._called is not None:
            self.called.train(mode)
        super().train(mode)
        return self

    def take_over(self, module: nn.Module) -> None:
        """Have a module's parameters, buffers and children under the names that they have there."""
        for name, child in module.named_children():
            self.add_module(name, child)
        for name, parameter in module._parameters.items():  # noqa: SLF001  Those that are None, too.
            self.register_parameter(name, parameter)
        for name, buffer in module._buffers.items():  # noqa: SLF001
            self.register_buffer(name, buffer)
        self.pieces = {name: None for name, _ in module.named_parameters()}


@contextmanager
def gradients_summed(layers: Sequence[PartitionedLayer], peers: Communicator) -> Iterator[None]:
    """A forward pass whose backward sums the gradients of all tied parameters at its end."""
    places = [
        (layer, name, parameter)
        for layer in layers
        if layer.is_tied
        for name, parameter in layer.named_parameters()
        if parameter.requires_grad
    ]
    together = tied([parameter for _, _, parameter in places], peers)
    try:
        for (layer, name, _), each in zip(places, together, strict=True):
            layer.tied[name] = each
        yield
    finally:
        for layer in layers:
            layer.tied.clear()


def type_for_all(x: Tensor) -> torch.dtype:
    """Of what a layer makes of an input, where partitions that compute nothing have to know it."""
    # Autocast knows no tensors without values.
    autocasts = not x.is_meta and torch.is_autocast_enabled(x.device.type)
    return torch.float32 if autocasts and x.dtype is not torch.float64 else x.dtype


class OverWindows(PartitionedLayer):
    """A layer that is divided by rows and columns.

    A partition whose window is `NOTHING` computes nothing, and has no parameters but tied ones. It
    takes part in what crosses, in backward too: others may need its part of the input.
    """

    def __init__(
        self, layer: Windowed, outputs: Windows, input_size: tuple[int, int], peers: Communicator
    ) -> None:
        own = outputs[peers.rank]
        part = layer.part(own)
        super().__init__(peers, _OnWindow(part))
        self._outputs = outputs
        self._needed = tuple(layer.input_window(box) if box.area else NOTHING for box in outputs)
        self._size = layer.output_size(*input_size)
        self._input_size = input_size
        self.is_tied = part is layer
        self._padding, self._product = part.padding_value, part.product
        self.take_over(part)
        self._elsewhere: Sequence[nn.Parameter] = ()
        """Of the layer, without elements: no part of them is here."""
        if not self.is_tied:
            self.pieces = {name: layer.place_of(name, own) for name in self.pieces}
            if not own.area:
                self._leave_parameters()

    def _leave_parameters(self) -> None:
        self._elsewhere = tuple(self.parameters())
        for name in self.pieces:
            module, _, own = name.rpartition(".")
            delattr(self.get_submodule(module), own)
        self.pieces = {}

    def forward(self, value: Value) -> Value:
        arriving, peers = value.array.begin_fetch(self._needed, self._padding), self.peers
        view = View(self._outputs[peers.rank], self._needed[peers.rank], *self._input_size)
        if not view.output.area:
            x = arriving.wait()
            y = self._nothing(x, self.windowed.output_channels(x.shape[1]))
        elif self._product is None:
            y = functional_call(self.called, self._given(), (arriving.wait(), view))
        else:
            own = self._own()
            y = applied(self._product, arriving, (own["weight"], own.get("bias")), peers)
        y = self._in_known_type(y, value.array.tensor)
        return Value(DistributedArray(y, self._outputs, *self._size, peers))

    def _nothing(self, x: Tensor, channels: int) -> Tensor:
        """Without elements. It has a gradient where the output of others has one."""
        own = [*self._own().values(), *self._elsewhere]
        found: Tensor = _Nothing.apply(x, channels, *own)
        return found

    def _in_known_type(self, y: Tensor, x: Tensor) -> Tensor:
        return y if all(box.area for box in self._outputs) else y.to(type_for_all(x))

    @property
    def windowed(self) -> Windowed:
        """The layer, whose own parameters are not what counts."""
        found = self.called
        assert isinstance(found, _OnWindow)  # noqa: S101
        return found.layer

    def transposed(self, value: Value, windows: Windows) -> DistributedArray:
        """Of `UnitFilters2d`: its transpose times what came out, divided as its input was."""
        layer = self.windowed
        assert isinstance(layer, UnitFilters2d)  # noqa: S101
        y, needed = value.array.tensor, self._needed[self.peers.rank]
        if needed.area:
            x = functional_call(_Transposed(layer), self._given(), (y, needed))
        else:
            x = self._nothing(y, layer.in_channels)
        return assembled(self._in_known_type(x, y), self._needed, windows, self.peers)

    def _own(self) -> dict[str, Tensor]:
        return {**dict(self.named_parameters()), **dict(self.named_buffers()), **self.tied}

    def _given(self) -> dict[str, Tensor]:
        """What the layer is called with in place of its own values."""
        return {f"layer.{name}": each for name, each in self._own().items()}


class _Nothing(Function):
    """Lets a partition without a window take part in what backward exchanges."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, channels: int, *own: Tensor) -> Tensor:
        # It has no elements.
        ctx.x, ctx.own = x.detach(), len(own)  # type: ignore[attr-defined]
        return x.new_empty((len(x), channels, 0, 0))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        del gradient
        return ctx.x, None, *(None for _ in range(ctx.own))  # type: ignore[attr-defined]


class _OnWindow(nn.Module):
    def __init__(self, layer: Windowed) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, view: View) -> Tensor:
        return self.layer.forward_window(x, view)


class _Transposed(nn.Module):
    def __init__(self, layer: UnitFilters2d) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, y: Tensor, window: Box) -> Tensor:
        return self.layer.transposed_window(y, window)


class Elementwise(PartitionedLayer):
    """A layer that looks at each element by itself, and has no parameters."""

    def forward(self, value: Value) -> Value:
        return value.replaced(self.called(value.array.tensor))


class Flat(PartitionedLayer):
    """Changes nothing here: whoever needs features in their order fetches all of them."""

    def forward(self, value: Value) -> Value:
        return Value(value.array, is_flat=True)


class Dropped(PartitionedLayer):
    """Dropout with the mask of the undivided array."""

    def __init__(self, dropout: HashDropout, peers: Communicator) -> None:
        super().__init__(peers)
        self.dropout = dropout

    def forward(self, value: Value) -> Value:
        array = value.array
        x = array.tensor
        rows, columns = value.windows[self.peers.rank]
        channel = torch.arange(x.shape[1], device=x.device)[:, None, None] * array.height
        row = torch.arange(rows.first, rows.end, device=x.device)[:, None]
        column = torch.arange(columns.first, columns.end, device=x.device)
        places = (channel + row) * array.width + column
        return value.replaced(self.dropout.forward_places(x, places))


_PRODUCT = LinearProduct()


class Features(PartitionedLayer):
    """A Linear divided by output units. Activations are gathered once in each partition."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, module: nn.Linear, spans: list[Span], peers: Communicator) -> None:
        super().__init__(peers)
        own = slice(*spans[peers.rank])
        self._size = module.out_features
        self._windows = tuple(Box(span, Span(0, 1)) for span in spans)
        for name, parameter in module._parameters.items():  # noqa: SLF001  A bias that is None, too.
            part = parameter
            if parameter is not None:
                part = nn.Parameter(parameter.detach()[own].clone(), parameter.requires_grad)
                self.pieces[name] = (own,)
            self.register_parameter(name, part)

    def forward(self, value: Value) -> Value:
        array = value.array
        arriving = array.begin_fetch(on_all(self.peers.size, array.height, array.width))
        y = applied(_PRODUCT, arriving, (self.weight, self.bias), self.peers)
        found = DistributedArray(y[:, None, :, None], self._windows, self._size, 1, self.peers)
        return Value(found, is_flat=True)


class Normalised(PartitionedLayer):
    """BatchNorm2d: mean and second moment are of all partitions, in backward too."""

    is_tied = True
    weight: nn.Parameter | None
    bias: nn.Parameter
    running_mean: Tensor | None
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, module: nn.BatchNorm2d, peers: Communicator) -> None:
        super().__init__(peers)
        self.eps, self.momentum = module.eps, module.momentum
        self.take_over(module)

    def forward(self, value: Value) -> Value:
        given, array = value.array.tensor, value.array
        # As torch does: sums of narrow numbers would lose what the running values are made of.
        x = given.float() if given.dtype in _NARROW else given
        if self.training or self.running_mean is None:
            count = x.shape[0] * array.height * array.width
            mean, variance = self._moments(x, value.windows, count)
            self._follow(mean.detach(), variance.detach() * (count / max(count - 1, 1)), count)
        else:
            mean, variance = self.running_mean, self.running_var
        scale = torch.rsqrt(variance + self.eps)
        y = (x - mean[:, None, None]) * scale[:, None, None]
        if self.weight is not None:
            weight = self.tied.get("weight", self.weight)
            bias = self.tied.get("bias", self.bias)
            y = y * weight[:, None, None] + bias[:, None, None]
        return value.replaced(y.to(given.dtype))

    def _moments(self, x: Tensor, windows: Windows, count: int) -> tuple[Tensor, Tensor]:
        """Mean and variance of each channel, by one sum over the partitions.

        Each one adds its own mean, and its sum of squares around that, so that no digits are lost
        where the mean is much larger than the deviation (Chan, Golub and LeVeque 1983).
        """
        peers = self.peers
        numbers = x.new_tensor([len(x) * box.area for box in windows])
        # Of an array that all have, each partition stands for its share.
        shares = (numbers * (count / numbers.sum()))[:, None]
        mean = x.sum(dim=(0, 2, 3)) / max(len(x) * windows[peers.rank].area, 1)
        squares = (x - mean[:, None, None]).square().sum(dim=(0, 2, 3))
        own = torch.stack([mean, squares * (count / numbers.sum())])
        others = x.new_zeros((peers.size, *own.shape))
        place = torch.arange(peers.size, device=x.device)[:, None, None] == peers.rank
        means, squares = summed(torch.where(place, own, others), peers).unbind(1)
        mean = (shares * means).sum(0) / count
        around = (shares * (means - mean).square()).sum(0)
        return mean, (squares.sum(0) + around) / count

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor, count: int) -> None:
        if self.running_mean is None or mean.is_meta:
            return
        self.num_batches_tracked += 1
        if count == 0:
            # Torch counts a batch of no samples, too, and learns nothing from it.
            return
        weight = self.momentum
        if weight is None:
            weight = 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean, weight)
        self.running_var.lerp_(variance, weight)
