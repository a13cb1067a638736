"""What the stacks of a sparse autoencoder are trained for: Coates et al. 2013, equation 1.

A stack is a `ReconstructionTarget`, `UnitFilters2d`, `L2Pool2d`, and what normalises their output.
With x the target, y = W x the responses and p the pools sqrt(eps + sum of y^2), its loss is
|alpha W^T y - x|^2 + sparsity * sum of p, the mean over samples. eps is that of the pooling layer.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from disttrain.parallel.array import DistributedArray
from disttrain.parallel.communicator import summed_for_all
from disttrain.parallel.layers.partitioned import (
    OverWindows,
    PartitionedLayer,
    Value,
    gradients_summed,
)
from disttrain.parallel.layers.pooling import L2Pool2d
from disttrain.parallel.layers.unit_filters import ReconstructionTarget, UnitFilters2d
from disttrain.parallel.partitioned import Partitioned

SPARSITY = 0.1


def reconstruction_losses(
    model: nn.Sequential | Partitioned,
    x: Tensor,
    *,
    sparsity: float = SPARSITY,
    first: int = 0,
    last: int | None = None,
) -> list[Tensor]:
    """The losses of the stacks from `first` to `last`, of all by default.

    Their sum trains them jointly: gradients go down through targets, too. What is below `first` has
    no gradient, and what is above `last` is not computed: in greedy training both are one stack.
    In partitions all have the same losses. Raises ValueError.
    """
    way: _Way = _InParts(model) if isinstance(model, Partitioned) else _InOne(model)
    stacks = list(_stacks(way.layers(), last))
    has_gradients = torch.is_grad_enabled()
    value, losses = way.begin(x), []
    target: tuple[Any, Tensor] | None = None
    error: Tensor | None = None
    with way.computing([layer for stack, layer, _ in stacks if stack >= first]):
        for stack, layer, kind in stacks:
            with torch.set_grad_enabled(has_gradients and stack >= first):
                value = layer(value)
                if stack < first:
                    continue
                if isinstance(kind, ReconstructionTarget):
                    target = value, way.alpha(layer)
                elif isinstance(kind, UnitFilters2d) and target is not None:
                    error, target = way.error(layer, value, *target), None
                elif isinstance(kind, L2Pool2d) and error is not None:
                    losses.append(way.mean(error + sparsity * way.sum(value), len(x)))
                    error = None
    if not losses:
        message = (
            f"no stack from {first} to {last}: one is a ReconstructionTarget, UnitFilters2d and "
            "L2Pool2d, and an undivided layer has none"
        )
        raise ValueError(message)
    return losses


def _stacks(
    layers: Iterable[tuple[nn.Module, nn.Module]], last: int | None
) -> Iterator[tuple[int, nn.Module, nn.Module]]:
    """Layers with the numbers of their stacks, up to the last one that is wanted."""
    stack = -1
    for layer, kind in layers:
        stack += isinstance(kind, ReconstructionTarget)
        if last is not None and stack > last:
            return
        yield stack, layer, kind


class _Way(ABC):
    """In one process or in partitions; a value is what goes from layer to layer."""

    @abstractmethod
    def begin(self, x: Tensor) -> Any: ...

    @abstractmethod
    def layers(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        """What is called, and what it computes."""

    def computing(self, layers: Sequence[nn.Module]) -> AbstractContextManager[None]:
        """Around the calls of layers with gradients."""
        del layers
        return nullcontext()

    @abstractmethod
    def alpha(self, layer: Any) -> Tensor: ...

    @abstractmethod
    def error(self, layer: Any, y: Any, target: Any, alpha: Tensor) -> Tensor:
        """The sum of squares here."""

    @abstractmethod
    def sum(self, value: Any) -> Tensor: ...

    @abstractmethod
    def mean(self, total: Tensor, samples: int) -> Tensor:
        """Over samples, of what all have here."""


class _InOne(_Way):
    def __init__(self, model: nn.Sequential) -> None:
        self._model = model

    def begin(self, x: Tensor) -> Tensor:
        return x

    def layers(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        return ((layer, layer) for layer in _leaves(self._model))

    def alpha(self, layer: ReconstructionTarget) -> Tensor:
        return layer.alpha

    def error(self, layer: UnitFilters2d, y: Tensor, target: Tensor, alpha: Tensor) -> Tensor:
        return (alpha * layer.transposed(y) - target).square().sum()

    def sum(self, value: Tensor) -> Tensor:
        return value.sum()

    def mean(self, total: Tensor, samples: int) -> Tensor:
        return total / samples


def _leaves(model: nn.Sequential) -> Iterator[nn.Module]:
    for layer in model:
        yield from _leaves(layer) if isinstance(layer, nn.Sequential) else (layer,)


class _InParts(_Way):
    def __init__(self, model: Partitioned) -> None:
        self._model, self._peers = model, model.peers

    def begin(self, x: Tensor) -> Value:
        return Value.of_input(x, self._peers)

    def layers(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        for layer in self._model.modules():
            if isinstance(layer, PartitionedLayer):
                yield layer, layer.windowed if isinstance(layer, OverWindows) else layer

    def computing(self, layers: Sequence[nn.Module]) -> AbstractContextManager[None]:
        own = [each for each in layers if isinstance(each, PartitionedLayer)]
        return gradients_summed(own, self._peers)

    def alpha(self, layer: OverWindows) -> Tensor:
        return layer.tied.get("alpha", layer.get_parameter("alpha"))

    def error(self, layer: OverWindows, y: Value, target: Value, alpha: Tensor) -> Tensor:
        array = target.array
        assert isinstance(array, DistributedArray)  # noqa: S101  As a target leaves it.
        back = layer.transposed(y, array.windows)
        return (alpha * back.tensor - array.tensor).square().sum()

    def sum(self, value: Value) -> Tensor:
        return value.array.tensor.sum()

    def mean(self, total: Tensor, samples: int) -> Tensor:
        return summed_for_all(total, self._peers) / samples
