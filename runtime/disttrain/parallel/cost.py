"""What a step of a divided model costs, before there are processes for it.

The parts of the model run on the meta device, with a communicator that counts and sends nothing. So
what is told of messages, bytes and products is what the layers do, not a second description of it.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from disttrain.parallel.array import Everywhere
from disttrain.parallel.communicator import Communicator, Exchange
from disttrain.parallel.layers.partitioned import PartitionedLayer, Value
from disttrain.parallel.partitioning import Partitioned, Way, partition
from disttrain.parallel.windows import Grid

_BACKWARD = 2.0
"""Products of backward by those of forward: the gradients of inputs and of parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCost:
    """Of one partition, for one batch, in forward."""

    passes: int = 2
    """Backward sends back what forward has received; 1: it has no messages."""

    name: str
    flops: float
    sent_bytes: int
    received_bytes: int
    sent: int
    """Messages."""
    received: int
    sums: int
    """Over all partitions, in forward and backward: batch statistics, and each tied parameter."""
    summed_bytes: int
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
    """A batch, forward and backward."""

    grid: Grid
    seconds: float
    waiting_seconds: float
    """Of these, in which all wait for the slowest partition, by the jitter."""
    crossing_seconds: float
    """Of these, for messages."""
    parameters: int
    """Of the partition with the most."""
    activation_bytes: int
    nbytes: int
    """Sent by all partitions together."""
    messages: int
    notes: tuple[str, ...]

    @property
    def partitions(self) -> int:
        return self.grid.size


class _Imagined(Communicator):
    """Of partitions that there are not."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.received_messages = 0
        self.received_bytes = 0
        self.summed_bytes = 0

    def _exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Exchange:
        del outgoing
        self.received_messages += len(incoming)
        self.received_bytes += sum(map(_nbytes, incoming.values()))
        return _Done()

    def _reduce(self, tensor: Tensor, *, is_sum: bool) -> Tensor:
        del is_sum
        self.summed_bytes += _nbytes(tensor)
        return torch.empty_like(tensor)


class _Done(Exchange):
    def wait(self) -> None:
        pass


def plan(  # noqa: PLR0913  What a step depends on.
    model: nn.Module,
    grid: Grid,
    machine: Machine,
    sample: Sequence[int],
    samples: int,
    overrides: Mapping[str, Way] | None = None,
    *,
    gathers_output: bool = True,
) -> PlannedStep:
    """A step of `samples` with the model in so many partitions. Raises CannotPartition.

    `model` keeps its values. `gathers_output`: the loss is of the whole output, in each partition.
    """
    nowhere = _on_meta(model)
    costs, parts = [], []
    for rank in range(grid.size):
        peers = _Imagined(rank, grid.size)
        parts.append(partition(nowhere, grid, peers, sample, overrides))
        costs.append(_of(parts[-1], peers, sample, samples, gathers_output=gathers_output))
    return _planned(grid, machine, costs, parts)


def square_grid(partitions: int) -> Grid:
    """The grid of so many partitions whose windows have the shortest rims."""
    rows = max(each for each in range(1, math.isqrt(partitions) + 1) if partitions % each == 0)
    return Grid(rows, partitions // rows)


def _planned(
    grid: Grid,
    machine: Machine,
    costs: Sequence[Sequence[LayerCost]],
    parts: Sequence[Partitioned],
) -> PlannedStep:
    seconds = waiting = crossing = 0.0
    for layer in zip(*costs, strict=True):
        # The next layer needs something of the others, so that all end together.
        computing = max((1 + _BACKWARD) * each.flops for each in layer) / machine.flops_per_second
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
        parameters=max(sum(p.numel() for p in part.parameters()) for part in parts),
        activation_bytes=max(sum(each.activation_bytes for each in layers) for layers in costs),
        nbytes=sum(each.passes * each.sent_bytes for layers in costs for each in layers),
        messages=sum(each.passes * each.sent for layers in costs for each in layers),
        notes=parts[0].notes,
    )


def _moving(cost: LayerCost, machine: Machine, size: int) -> float:
    """Seconds of messages in forward and backward, and of a sum in a ring."""
    there = max(cost.sent_bytes, cost.received_bytes) / machine.bytes_per_second
    # Messages of a machine go one after the other.
    there += max(cost.sent, cost.received) * machine.latency_seconds
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
    for name, layer in part.named_modules():
        if isinstance(layer, PartitionedLayer):
            value, cost = _layer(name, layer, value, peers)
            found.append(cost)
    if gathers_output and not isinstance(value.array, Everywhere):
        array, before = value.array, _Counted.of(peers)
        whole = array.everywhere()
        found.append(before.until(peers, "output", activations=_nbytes(whole), passes=1))
    return found


def _layer(
    name: str, layer: PartitionedLayer, value: Value, peers: _Imagined
) -> tuple[Value, LayerCost]:
    before = _Counted.of(peers)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        value = layer(value)
    own = [each for name, each in layer.named_parameters() if name in layer.pieces]
    tied = own if layer.is_tied else []
    activations, flops = _nbytes(value.array.tensor), float(counter.get_total_flops())
    return value, before.until(peers, name, flops=flops, tied=tied, activations=activations)


@dataclass(frozen=True, slots=True)
class _Counted:
    messages: int
    nbytes: int
    received_messages: int
    received_bytes: int
    sums: int
    summed_bytes: int

    @classmethod
    def of(cls, peers: _Imagined) -> "_Counted":
        sent = peers.traffic
        return cls(
            sent.messages,
            sent.nbytes,
            peers.received_messages,
            peers.received_bytes,
            sent.sums,
            peers.summed_bytes,
        )

    def until(
        self,
        peers: _Imagined,
        name: str,
        *,
        activations: int,
        flops: float = 0.0,
        tied: Sequence[Tensor] = (),
        passes: int = 2,
    ) -> LayerCost:
        now = _Counted.of(peers)
        return LayerCost(
            name=name,
            passes=passes,
            flops=flops,
            sent_bytes=now.nbytes - self.nbytes,
            received_bytes=now.received_bytes - self.received_bytes,
            sent=now.messages - self.messages,
            received=now.received_messages - self.received_messages,
            sums=2 * (now.sums - self.sums) + len(tied),
            summed_bytes=2 * (now.summed_bytes - self.summed_bytes) + sum(map(_nbytes, tied)),
            activation_bytes=activations,
        )


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _on_meta(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).to("meta").float()
