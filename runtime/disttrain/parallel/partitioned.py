"""One partition of a model, at work."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from disttrain.parallel.array import DistributedArray, Everywhere
from disttrain.parallel.communicator import Communicator
from disttrain.parallel.layers.on_one import OnOne, sections, slices_of, through
from disttrain.parallel.layers.partitioned import Index, PartitionedLayer, Value, gradients_summed
from disttrain.parallel.windows import on_one


class CannotPartition(ValueError):
    """A model that cannot be divided as asked; the message names the layer."""


class SeveralDevices(CannotPartition):
    """Layers on several devices; a partition computes on one."""


def require_one_device(named: Iterable[tuple[str, Tensor]]) -> None:
    """Of parameters and buffers by name. Raises SeveralDevices with two names.

    A layer elsewhere would fail only when it is called.
    """
    for (before, one), (name, value) in itertools.pairwise(named):
        if value.device != one.device:
            message = (
                f"{name}: it is on {value.device}, and {before} on {one.device}; move the whole "
                "model to one device, by model.to(...)"
            )
            raise SeveralDevices(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Of one sample between two layers; flat ones have one channel and one column."""

    channels: int
    height: int
    width: int
    is_flat: bool = False

    @property
    def elements(self) -> int:
        return self.channels * self.height * self.width

    @property
    def dimensions(self) -> int:
        return 1 if self.is_flat else 3


class PartOfModel(Protocol):
    """One process's part of a model, with its values. `peers` have the others."""

    peers: Communicator

    @property
    def pieces(self) -> Mapping[str, Index | None]:
        """Where each of its parameters lies in the model's; None: it is all of it."""
        ...

    def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]: ...
    def named_buffers(self) -> Iterable[tuple[str, Tensor]]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def get_submodule(self, name: str, /) -> nn.Module: ...


class Partitioned(nn.Module):
    """One partition of a model. All partitions call it with the same samples, in the same order."""

    def __init__(
        self,
        layers: nn.Sequential,
        peers: Communicator,
        output: Shape,
        notes: Sequence[str],
        sample: Shape,
        micro_batches: int | None = None,
    ) -> None:
        super().__init__()
        self._micro_batches = micro_batches
        self._sample = sample
        self.peers = peers
        self.notes = tuple(notes)
        """What a user should know, such as which layers are not divided."""
        self.output = output
        """Of one sample, as a whole."""
        for name, child in layers.named_children():
            self.add_module(name, child)

    def forward(self, x: Tensor) -> Tensor:
        """The whole output in each partition, which all have to go on with in the same way."""
        found = self.divided(x)
        whole = found.everywhere()
        return whole.flatten(1) if self.output.is_flat else whole

    def divided(self, x: Tensor) -> DistributedArray:
        """The output, of which each partition has its window. Features are in rows."""
        return self.through(Value.of_input(x, self.peers))

    @property
    def sample(self) -> tuple[int, ...]:
        """Shape of a sample of the undivided model."""
        shape = self._sample
        return (shape.elements,) if shape.is_flat else (shape.channels, shape.height, shape.width)

    def from_first(self, x: Tensor) -> Tensor:
        """The whole output, in the first partition, of samples that only that one has.

        Each other partition gets what it needs of them. It gives `no_input`, and gets a tensor
        without elements, of which it calls backward when the first one does that of the output.
        """
        found = self.through(self.input_of_first(x))
        whole = found.fetch(on_one(0, self.peers.size, found.height, found.width))
        return whole.flatten(1) if self.output.is_flat else whole

    def input_of_first(self, x: Tensor) -> Value:
        """Samples that the first partition alone has. The others give `no_input`."""
        shape = self._sample
        array = DistributedArray(
            x[:, None, :, None] if x.dim() == 2 else x,
            on_one(0, self.peers.size, shape.height, shape.width),
            shape.height,
            shape.width,
            self.peers,
        )
        return Value(array, shape.is_flat)

    def no_input(self, samples: int, dtype: torch.dtype) -> Tensor:
        """What a partition other than the first has of samples that only that one has."""
        return torch.empty(samples, self._sample.channels, 0, 0, dtype=dtype)

    def through(self, value: Value) -> DistributedArray:
        """The output of samples, wherever they lie."""
        layers = [each for each in self.modules() if isinstance(each, PartitionedLayer)]
        with gradients_summed(layers, self.peers):
            for section in sections(layers):
                if isinstance(section, PartitionedLayer):
                    value = section(value)
                else:
                    value = through(section, value, slices_of(section, self._micro_batches))
        if isinstance(value.array, Everywhere):
            message = "the model has no layer that could be divided"
            raise CannotPartition(message)
        return value.array

    @property
    def pieces(self) -> dict[str, Index | None]:
        """Where each of this partition's parameters lies in the model's; None: it is all of it."""
        found: dict[str, Index | None] = {}
        for name, module in self.named_modules():
            if isinstance(module, PartitionedLayer):
                found |= {f"{name}.{own}": index for own, index in module.pieces.items()}
        return found

    @property
    def own_buffers(self) -> list[str]:
        """The buffers that this partition alone has. Others are in all partitions."""
        return [
            f"{name}.{own}"
            for name, module in self.named_modules()
            if isinstance(module, OnOne)
            for own, _ in module.named_buffers()
        ]
