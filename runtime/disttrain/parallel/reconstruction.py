"""What the stacks of a sparse autoencoder are trained for: Coates et al. 2013, equation 1.

A stack is a `ReconstructionTarget`, `UnitFilters2d`, `L2Pool2d`, and what normalises their output.
With x the target, y = W x the responses and p the pools sqrt(eps + sum of y^2), its loss is
|alpha W^T y - x|^2 + sparsity * sum of p, the mean over samples. eps is that of the pooling layer.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from disttrain.parallel.array import DistributedArray
from disttrain.parallel.communicator import summed_for_all
from disttrain.parallel.layers.on_one import OnOne
from disttrain.parallel.layers.partitioned import (
    OverWindows,
    PartitionedLayer,
    Value,
    gradients_summed,
)
from disttrain.parallel.layers.pooling import L2Pool2d
from disttrain.parallel.layers.unit_filters import ReconstructionTarget, UnitFilters2d
from disttrain.parallel.objective import Objective, joint_forward
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
    objective = Reconstruction(sparsity=sparsity, first=first, last=last)
    forward = joint_forward(model)
    if forward is not None:
        return [*forward.losses(objective, x).unbind()]
    if isinstance(model, Partitioned):
        return objective.found(_InParts(model), Value.of_input(x, model.peers), len(x))
    return objective.found(_InOne(model), x, len(x))


@dataclass(frozen=True, kw_only=True)
class Reconstruction(Objective):
    """`reconstruction_losses`, each of them."""

    sparsity: float
    first: int
    last: int | None

    def check(self, part: Partitioned, samples: int, labels: Tensor | None) -> None:
        del samples, labels
        self._wanted(_InParts(part))

    def losses(self, part: Partitioned, x: Value, labels: Tensor | None) -> Tensor:
        del labels
        return torch.stack(self.found(_InParts(part), x, len(x.array.tensor)))

    def found(self, way: "_Way", value: Any, samples: int) -> list[Tensor]:
        """In one process or in partitions."""
        first, stacks = self.first, self._wanted(way)
        has_gradients = torch.is_grad_enabled()
        losses: list[Tensor] = []
        target: tuple[Any, Tensor] | None = None
        error: Tensor | None = None
        with way.computing([layer for stack, layer, _ in stacks if stack >= first]):
            for stack, layer, role in stacks:
                with torch.set_grad_enabled(has_gradients and stack >= first):
                    value = layer(value)
                    if stack < first:
                        continue
                    if role is ReconstructionTarget:
                        target = value, way.alpha(layer)
                    elif role is UnitFilters2d and target is not None:
                        error = way.error(layer, value, *target)
                    elif role is L2Pool2d and error is not None:
                        losses.append(way.mean(error + self.sparsity * way.sum(value), samples))
        return losses

    def _wanted(self, way: "_Way") -> list["_InStack"]:
        """Layers, up to the last one that is computed."""
        found = [each for each in _stacks(way.layers()) if each.stack <= self._last]
        if not any(each.role is L2Pool2d and each.stack >= self.first for each in found):
            message = (
                f"no stack from {self.first} to {self.last}: one is a ReconstructionTarget, "
                "UnitFilters2d and L2Pool2d"
            )
            raise ValueError(message)
        return found

    @property
    def _last(self) -> float:
        return math.inf if self.last is None else self.last


class _InStack(NamedTuple):
    stack: int
    """-1: before the first one."""
    layer: nn.Module
    role: type[nn.Module] | None
    """Of the three whose values a loss is of; None: it is another layer."""


_ROLES: Sequence[type[nn.Module]] = (ReconstructionTarget, UnitFilters2d, L2Pool2d)
"""In the order in which a stack has them; there may be others between."""


def _stacks(layers: Iterable[tuple[nn.Module, nn.Module]]) -> Iterator[_InStack]:
    stack, done = -1, len(_ROLES)
    for layer, kind in layers:
        if isinstance(kind, ReconstructionTarget):
            stack, done = stack + 1, 0
        role = _ROLES[done] if done < len(_ROLES) and isinstance(kind, _ROLES[done]) else None
        done += role is not None
        yield _InStack(stack, layer, role)


class _Way(ABC):
    """In one process or in partitions; a value is what goes from layer to layer."""

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

    def layers(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        for name, layer in self._model.named_modules():
            if isinstance(layer, OnOne) and issubclass(layer.kind, tuple(_ROLES)):
                message = (
                    f"layer {name} lies whole on partition {layer.place}, and the layers of stacks "
                    "have to be divided; leave it out of partitioning and wholeOn"
                )
                raise ValueError(message)
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
