"""One partition's side of each kind of layer.

Each has the parameters of the undivided layer under the same names: all of them, a part, or none.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from disttrain.parallel.array import DistributedArray, Everywhere
from disttrain.parallel.communicator import Communicator, summed, tied
from disttrain.parallel.layers.dropout import HashDropout
from disttrain.parallel.layers.windowed import View, Windowed, padded
from disttrain.parallel.windows import Box, Span, Windows, on_one, whole

Index = tuple[slice, ...]


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
            return (whole(array.height, array.width),) * array.peers.size
        return array.windows


class PartitionedLayer(nn.Module):
    """From the value before a layer to the one behind it."""

    is_tied: bool = False
    """Whether all partitions have its parameters, whose gradients are summed."""

    def __init__(self, peers: Communicator) -> None:
        super().__init__()
        self.peers = peers
        self.pieces: dict[str, Index | None] = {}
        """Where each parameter's own part lies in the whole one; None: it is all of it."""

    @abstractmethod
    def forward(self, value: Value) -> Value: ...

    def take_over(self, module: nn.Module) -> None:
        """Have a module's parameters, buffers and children under the names that they have there.

        The module itself is no child, and is called with what this one has.
        """
        for name, child in module.named_children():
            self.add_module(name, child)
        for name, parameter in module.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in module.named_buffers(recurse=False):
            self.register_buffer(name, buffer)

    def adopt(self, name: str, parameter: Tensor | None, index: Index | None = None) -> None:
        """Take a parameter of the undivided layer over, or its part."""
        own = parameter
        if parameter is not None and index is not None:
            own = parameter.detach()[index].clone()
        if own is not None and not isinstance(own, nn.Parameter):
            own = nn.Parameter(own, parameter is not None and parameter.requires_grad)
        self.register_parameter(name, own)
        if own is not None:
            self.pieces[name] = index


class OverWindows(PartitionedLayer):
    """A layer that is divided by rows and columns."""

    def __init__(
        self, layer: Windowed, outputs: Windows, input_size: tuple[int, int], peers: Communicator
    ) -> None:
        super().__init__(peers)
        own = outputs[peers.rank]
        self._outputs = outputs
        self._needed = tuple(layer.input_window(box) for box in outputs)
        self._size = layer.output_size(*input_size)
        self._input_size = input_size
        part = layer.part(own)
        self.is_tied = part is layer
        self._window = (_OnWindow(part),)
        self.take_over(part)
        self.pieces = {
            name: None if self.is_tied else layer.place_of(name, own)
            for name, _ in part.named_parameters()
        }

    def forward(self, value: Value) -> Value:
        x, peers = value.array.fetch(self._needed), self.peers
        own, needed = self._outputs[peers.rank], self._needed[peers.rank]
        inside = needed.meets(whole(*self._input_size))
        (window,) = self._window
        view = View(own, needed, *self._input_size)
        given = {f"layer.{name}": self._given(each) for name, each in self.named_parameters()}
        given |= {f"layer.{name}": buffer for name, buffer in self.named_buffers()}
        y = functional_call(window, given, (padded(x, inside, needed, window.value), view))
        return Value(DistributedArray(y, self._outputs, *self._size, peers))

    def train(self, mode: bool = True) -> "OverWindows":  # noqa: FBT001, FBT002  As torch's.
        self._window[0].train(mode)
        super().train(mode)
        return self

    def _given(self, parameter: Tensor) -> Tensor:
        return tied(parameter, self.peers) if self.is_tied else parameter


class _OnWindow(nn.Module):
    def __init__(self, layer: Windowed) -> None:
        super().__init__()
        self.layer = layer
        self.value = layer.padding_value

    def forward(self, x: Tensor, view: View) -> Tensor:
        return self.layer.forward_window(x, view)


class Elementwise(PartitionedLayer):
    """A layer that looks at each element by itself, and has no parameters."""

    def __init__(self, module: nn.Module, peers: Communicator) -> None:
        super().__init__(peers)
        self._module = (module,)

    def forward(self, value: Value) -> Value:
        return value.replaced(self._module[0](value.array.tensor))


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


class Features(PartitionedLayer):
    """A Linear divided by output units. Activations are gathered once in each partition."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, module: nn.Linear, spans: list[Span], peers: Communicator) -> None:
        super().__init__(peers)
        own = slice(*spans[peers.rank])
        self._size = module.out_features
        self._windows = tuple(Box(span, Span(0, 1)) for span in spans)
        self.adopt("weight", module.weight, (own, slice(None)))
        self.adopt("bias", module.bias, (own,))

    def forward(self, value: Value) -> Value:
        array = value.array
        everything = (whole(array.height, array.width),) * self.peers.size
        x = array.fetch(everything).flatten(1)
        y = functional.linear(x, self.weight, self.bias)
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
        self.adopt("weight", module.weight)
        self.adopt("bias", module.bias)
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(module, name))

    def forward(self, value: Value) -> Value:
        x, array = value.array.tensor, value.array
        if self.training or self.running_mean is None:
            count = x.shape[0] * array.height * array.width
            share = 1.0 if isinstance(array, DistributedArray) else 1.0 / self.peers.size
            mean = summed(x.sum(dim=(0, 2, 3)) * share, self.peers) / count
            centred = x - mean[:, None, None]
            variance = summed(centred.square().sum(dim=(0, 2, 3)) * share, self.peers) / count
            self._follow(mean.detach(), variance.detach() * (count / max(count - 1, 1)))
        else:
            mean, variance = self.running_mean, self.running_var
            centred = x - mean[:, None, None]
        scale = torch.rsqrt(variance + self.eps)
        y = centred * scale[:, None, None]
        if self.weight is not None:
            weight, bias = tied(self.weight, self.peers), tied(self.bias, self.peers)
            y = y * weight[:, None, None] + bias[:, None, None]
        return value.replaced(y)

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or mean.is_meta:
            return
        self.num_batches_tracked += 1
        weight = self.momentum
        if weight is None:
            weight = 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean, weight)
        self.running_var.lerp_(variance, weight)


class OnOne(PartitionedLayer):
    """A layer that one partition computes as it is, on what is gathered there."""

    def __init__(
        self, module: nn.Module, output: tuple[int, int, int], *, is_flat: bool, peers: Communicator
    ) -> None:
        """`output`: channels, height and width."""
        super().__init__(peers)
        self._output, self._is_flat = output, is_flat
        self._module = (module,)
        if peers.rank == 0:
            self.take_over(module)
            self.pieces = {name: None for name, _ in module.named_parameters()}

    def train(self, mode: bool = True) -> "OnOne":  # noqa: FBT001, FBT002  As torch's.
        self._module[0].train(mode)
        super().train(mode)
        return self

    def forward(self, value: Value) -> Value:
        array, peers = value.array, self.peers
        x = array.fetch(on_one(0, peers.size, array.height, array.width))
        channels, height, width = self._output
        if peers.rank == 0:
            given = {**dict(self.named_parameters()), **dict(self.named_buffers())}
            y = functional_call(self._module[0], given, (value.whole(x),))
            y = y[:, None, :, None] if self._is_flat else y
        else:
            # Nothing, but of what was fetched, so that backward comes by here too.
            y = x.new_zeros((len(x), channels, 0, 0)) + x.sum()
        # All partitions have to come by in backward, or none: others have no parameters here.
        y = y + x.new_zeros((), requires_grad=torch.is_grad_enabled())
        windows = on_one(0, peers.size, height, width)
        return Value(DistributedArray(y, windows, height, width, peers), self._is_flat)
