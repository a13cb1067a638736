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

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from disttrain.parallel.array import Everywhere
from disttrain.parallel.communicator import Communicator, Done, Exchange, Traffic
from disttrain.parallel.layers.partitioned import PartitionedLayer, Value
from disttrain.parallel.partitioned import Partitioned
from disttrain.parallel.partitioning import Way, partition
from disttrain.parallel.whole_layers import on_meta
from disttrain.parallel.windows import Grid

_BACKWARD = 2.0
"""Products of backward by those of forward: the gradients of inputs and of parameters."""


class Purpose(Enum):
    """What a batch is for."""

    TRAINING = "training"
    """Forward and backward."""
    INFERENCE = "inference"
    """Forward alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCost:
    """Of one partition, for one batch."""

    flops: float
    """In forward."""
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


def plan(  # noqa: PLR0913  What a step depends on.
    model: nn.Module,
    grid: Grid,
    machine: Machine,
    sample: Sequence[int],
    samples: int,
    overrides: Mapping[str, Way] | None = None,
    *,
    gathers_output: bool = True,
    purpose: Purpose = Purpose.TRAINING,
) -> PlannedStep:
    """A step of `samples` with the model in so many partitions. Raises CannotPartition.

    `model` keeps its values. `gathers_output`: the loss is of the whole output, in each partition.
    """
    nowhere = on_meta(model)
    costs, parts = [], []
    for rank in range(grid.size):
        peers = _Imagined(rank, grid.size)
        parts.append(partition(nowhere, grid, peers, sample, overrides))
        found = _of(parts[-1], peers, sample, samples, gathers_output=gathers_output)
        found += _tied_sum(parts[-1])
        if purpose is Purpose.INFERENCE:
            # Batch statistics are those of training, and nothing goes back.
            found = [replace(each, passes=1, sums=0, summed_bytes=0) for each in found]
        costs.append(found)
    return _planned(grid, machine, costs, parts, purpose)


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
    products = 1.0 if purpose is Purpose.INFERENCE else 1.0 + _BACKWARD
    for layer in zip(*costs, strict=True):
        # The next layer needs something of the others, so that all end together.
        computing = max(products * each.flops for each in layer) / machine.flops_per_second
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
        flops=max(products * sum(each.flops for each in layers) for layers in costs),
        parameters=max(map(_parameters, parts)),
        activation_bytes=max(sum(each.activation_bytes for each in layers) for layers in costs),
        memory_bytes=max(
            _memory(part, layers, purpose) for part, layers in zip(parts, costs, strict=True)
        ),
        nbytes=sum(each.passes * each.sent.nbytes for layers in costs for each in layers),
        messages=sum(each.passes * each.sent.messages for layers in costs for each in layers),
        notes=parts[0].notes,
    )


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
    part: Partitioned,
    peers: _Imagined,
    sample: Sequence[int],
    samples: int,
    *,
    gathers_output: bool,
) -> list[LayerCost]:
    value = Value.of_input(torch.empty(samples, *sample, device="meta"), peers)
    found = []
    for layer in part.modules():
        if isinstance(layer, PartitionedLayer):
            value, cost = _layer(layer, value, peers)
            found.append(cost)
    if gathers_output and not isinstance(value.array, Everywhere):
        peers.begin()
        activations = _nbytes(value.array.everywhere())
        found.append(
            LayerCost(
                flops=0.0,
                sent=peers.traffic,
                received=peers.received,
                passes=1,
                activation_bytes=activations,
            )
        )
    return found


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
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        value = layer(value)
    return value, LayerCost(
        flops=float(counter.get_total_flops()),
        sent=peers.traffic,
        received=peers.received,
        sums=2 * peers.traffic.sums,
        summed_bytes=2 * peers.summed_bytes,
        activation_bytes=_nbytes(value.array.tensor),
    )


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
