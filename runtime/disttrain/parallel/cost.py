"""What a step of a divided model costs, before there are processes for it.

The parts of the model run on the meta device, with a communicator that counts and sends nothing. So
what is told of messages, bytes and products is what the layers do, not a second description of it.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from disttrain.parallel.array import DistributedArray
from disttrain.parallel.communicator import (
    Communicator,
    Done,
    Exchange,
    Traffic,
    summed_for_all,
)
from disttrain.parallel.layers.partitioned import OverWindows, PartitionedLayer, Value
from disttrain.parallel.layers.unit_filters import ReconstructionTarget, UnitFilters2d
from disttrain.parallel.partitioned import Partitioned
from disttrain.parallel.partitioning import Way, partition
from disttrain.parallel.whole_layers import on_meta
from disttrain.parallel.windows import Grid, on_one


class Purpose(Enum):
    """What a batch is for."""

    TRAINING = "training"
    """Forward and backward."""
    INFERENCE = "inference"
    """Forward alone."""


class Loss(Enum):
    """What is to become small, and so what of the output has to be where.

    All partitions have the samples, if nothing else is said.
    """

    OF_OUTPUT = "of the whole output"
    """Each partition gathers it."""
    IN_FIRST = "in the first partition"
    """That alone has the samples, and gathers the output: so it is in a job."""
    OF_PARTS = "of the divided output"
    """Nobody gathers it, as in `losses.one_vs_all`."""
    OF_STACKS = "of each stack's reconstruction"
    """All stacks jointly: see `reconstruction`. Nobody gathers the output."""


_GATHERS = (Loss.OF_OUTPUT, Loss.IN_FIRST)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCost:
    """Of one partition, for one batch."""

    flops: float
    """In forward."""
    backward: int = 0
    """How many times as many in backward: once for the gradient of the input, once for those of
    parameters."""
    sent: Traffic
    """In forward. Backward sends back what forward has received."""
    received: Traffic
    passes: int = 2
    """1: backward has no messages."""
    sums: int = 0
    """Over all partitions, in forward and backward."""
    summed_bytes: int = 0
    activation_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Each partition has one."""

    flops_per_second: float
    bytes_per_second: float
    """Each way."""
    latency_seconds: float = 0.00005
    """Of a message."""
    jitter: float = 0.0
    """Standard deviation of what a layer computes, of its seconds: all wait for the slowest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStep:
    """A batch, forward and in training backward."""

    grid: Grid
    seconds: float
    waiting_seconds: float
    """Of these, in which all wait for the slowest partition, by the jitter."""
    crossing_seconds: float
    """Of these, for messages."""
    flops: float
    """Of the partition with the most; so are the next three."""
    parameters: int
    activation_bytes: int
    memory_bytes: int
    """Parameters and activations; in training gradients of parameters, too, and every activation,
    else those of two layers. Without what torch, an optimizer and messages take beside."""
    nbytes: int
    """Sent by all partitions together."""
    messages: int
    notes: tuple[str, ...]

    @property
    def partitions(self) -> int:
        return self.grid.size


class _Imagined(Communicator):
    """Of partitions that there are not. Its counts are of the layer that runs."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        # What is computed a second time while messages are under way would count.
        self.overlaps = False

    def begin(self) -> None:
        """Another layer."""
        self.traffic, self.received, self.summed_bytes = Traffic(), Traffic(), 0

    def _exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Exchange:
        del outgoing
        self.received.messages += len(incoming)
        self.received.nbytes += sum(map(_nbytes, incoming.values()))
        return Done()

    def _reduce(self, tensor: Tensor, *, is_sum: bool) -> Tensor:
        del is_sum
        self.summed_bytes += _nbytes(tensor)
        return torch.empty_like(tensor)


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts as torch's own counter does, but does not look into what is no product."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0.0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        found = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=found)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What the partitions of a model do for a batch, whatever machines they have."""

    grid: Grid
    costs: Sequence[Sequence[LayerCost]]
    """Of each partition, in the order of the layers."""
    parts: Sequence[Partitioned]

    def step(self, machine: Machine, purpose: Purpose = Purpose.TRAINING) -> PlannedStep:
        """What it takes there."""
        if purpose is Purpose.TRAINING:
            return _planned(self.grid, machine, self.costs, self.parts, purpose)
        # Batch statistics are those of training, and nothing goes back.
        forward = [
            [replace(each, backward=0, passes=1, sums=0, summed_bytes=0) for each in layers]
            for layers in self.costs
        ]
        return _planned(self.grid, machine, forward, self.parts, purpose)


def counted(
    model: nn.Module,
    grid: Grid,
    sample: Sequence[int],
    samples: int,
    overrides: Mapping[str, Way] | None = None,
    *,
    loss: Loss = Loss.OF_OUTPUT,
) -> Counts:
    """A step of `samples` with the model in so many partitions. Raises CannotPartition.

    `model` keeps its values.
    """
    nowhere = on_meta(model)
    costs, parts = [], []
    for rank in range(grid.size):
        peers = _Imagined(rank, grid.size)
        parts.append(partition(nowhere, grid, peers, sample, overrides))
        costs.append(_of(parts[-1], peers, sample, samples, loss) + _tied_sum(parts[-1]))
    return Counts(grid=grid, costs=costs, parts=parts)


def square_grid(partitions: int) -> Grid:
    """The grid of so many partitions whose windows have the shortest rims."""
    rows = max(each for each in range(1, math.isqrt(partitions) + 1) if partitions % each == 0)
    return Grid(rows, partitions // rows)


def _planned(
    grid: Grid,
    machine: Machine,
    costs: Sequence[Sequence[LayerCost]],
    parts: Sequence[Partitioned],
    purpose: Purpose,
) -> PlannedStep:
    seconds = waiting = crossing = 0.0
    for layer in zip(*costs, strict=True):
        # The next layer needs something of the others, so that all end together.
        computing = max(map(_products, layer)) / machine.flops_per_second
        late = computing * machine.jitter * slowest_of(grid.size)
        moving = max(_moving(each, machine, grid.size) for each in layer)
        seconds += computing + late + moving
        waiting += late
        crossing += moving
    return PlannedStep(
        grid=grid,
        seconds=seconds,
        waiting_seconds=waiting,
        crossing_seconds=crossing,
        flops=max(sum(map(_products, layers)) for layers in costs),
        parameters=max(map(_parameters, parts)),
        activation_bytes=max(sum(each.activation_bytes for each in layers) for layers in costs),
        memory_bytes=max(
            _memory(part, layers, purpose) for part, layers in zip(parts, costs, strict=True)
        ),
        nbytes=sum(each.passes * each.sent.nbytes for layers in costs for each in layers),
        messages=sum(each.passes * each.sent.messages for layers in costs for each in layers),
        notes=parts[0].notes,
    )


def _products(cost: LayerCost) -> float:
    return (1 + cost.backward) * cost.flops


def _parameters(part: Partitioned) -> int:
    return sum(each.numel() for each in part.parameters())


def _memory(part: Partitioned, layers: Sequence[LayerCost], purpose: Purpose) -> int:
    of_parameters = sum(map(_nbytes, part.parameters()))
    activations = [each.activation_bytes for each in layers]
    if purpose is Purpose.TRAINING:
        return 2 * of_parameters + sum(activations)
    return of_parameters + max(sum(pair) for pair in itertools.pairwise([0, *activations]))


def _moving(cost: LayerCost, machine: Machine, size: int) -> float:
    """Seconds of messages in forward and backward, and of a sum in a ring."""
    sent, received = cost.sent, cost.received
    there = max(sent.nbytes, received.nbytes) / machine.bytes_per_second
    # Messages of a machine go one after the other.
    there += max(sent.messages, received.messages) * machine.latency_seconds
    found = cost.passes * there
    around = 2 * (size - 1)
    found += around / size * cost.summed_bytes / machine.bytes_per_second
    return found + around * cost.sums * machine.latency_seconds


def slowest_of(partitions: int) -> float:
    """How many standard deviations the slowest of so many is behind the mean (Blom 1958)."""
    if partitions == 1:
        return 0.0
    return NormalDist().inv_cdf((partitions - 0.375) / (partitions + 0.25))


def _of(
    part: Partitioned, peers: _Imagined, sample: Sequence[int], samples: int, loss: Loss
) -> list[LayerCost]:
    value = _input(peers, sample, samples, loss)
    found = []
    target: Value | None = None
    for layer in part.modules():
        if not isinstance(layer, PartitionedLayer):
            continue
        value, cost = _layer(layer, value, peers)
        found.append(cost)
        if loss is Loss.OF_STACKS and isinstance(layer, OverWindows):
            if target is not None and isinstance(layer.windowed, UnitFilters2d):
                found.append(_reconstruction(layer, value, target, peers))
            target = value if isinstance(layer.windowed, ReconstructionTarget) else None
    if loss in _GATHERS and isinstance(value.array, DistributedArray):
        found.append(_gathered(value.array, peers, loss))
    return found


def _input(peers: _Imagined, sample: Sequence[int], samples: int, loss: Loss) -> Value:
    x = torch.empty(samples, *sample, device="meta")
    value = Value.of_input(x, peers)
    if loss is not Loss.IN_FIRST:
        return value
    tensor, height, width = value.array.tensor, value.array.height, value.array.width
    windows = on_one(0, peers.size, height, width)
    own = tensor if peers.rank == 0 else tensor[:, :, :0, :0]
    return Value(DistributedArray(own, windows, height, width, peers), value.is_flat)


def _gathered(array: DistributedArray, peers: _Imagined, loss: Loss) -> LayerCost:
    """The output, where the loss is."""
    peers.begin()
    if loss is Loss.IN_FIRST:
        found, passes = array.fetch(on_one(0, peers.size, array.height, array.width)), 2
    else:
        found, passes = array.everywhere(), 1
    return LayerCost(
        flops=0.0,
        sent=peers.traffic,
        received=peers.received,
        passes=passes,
        activation_bytes=_nbytes(found),
    )


def _tied_sum(part: Partitioned) -> list[LayerCost]:
    """The gradients of tied parameters are summed once, all together."""
    layers = [each for each in part.modules() if isinstance(each, PartitionedLayer)]
    tied = [own for layer in layers if layer.is_tied for own in layer.parameters()]
    if not tied:
        return []
    return [
        LayerCost(
            flops=0.0,
            sent=Traffic(),
            received=Traffic(),
            sums=1,
            summed_bytes=sum(map(_nbytes, tied)),
            activation_bytes=0,
        )
    ]


def _layer(layer: PartitionedLayer, value: Value, peers: _Imagined) -> tuple[Value, LayerCost]:
    peers.begin()
    has_gradient = value.array.tensor.requires_grad
    with _Products() as counter:
        value = layer(value)
    return value, LayerCost(
        flops=counter.flops,
        backward=has_gradient + any(each.requires_grad for each in layer.parameters()),
        sent=peers.traffic,
        received=peers.received,
        passes=1 + has_gradient,
        sums=2 * peers.traffic.sums,
        summed_bytes=2 * peers.summed_bytes,
        activation_bytes=_nbytes(value.array.tensor),
    )


def _reconstruction(layer: OverWindows, value: Value, target: Value, peers: _Imagined) -> LayerCost:
    """As `reconstruction_losses` gives a target back and sums up its error."""
    assert isinstance(target.array, DistributedArray)  # noqa: S101  As a target leaves it.
    peers.begin()
    with _Products() as counter:
        back = layer.transposed(value, target.array.windows).tensor
        summed_for_all(back.sum(), peers)
    return LayerCost(
        flops=counter.flops,
        backward=2,
        sent=peers.traffic,
        received=peers.received,
        sums=peers.traffic.sums,
        summed_bytes=peers.summed_bytes,
        activation_bytes=_nbytes(back),
    )


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
