"""How long a batch takes a divided model on given machines. Pure, of what is counted."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import NormalDist

from disttrain.parallel.counting import Counts, LayerCost
from disttrain.parallel.partitioned import Partitioned
from disttrain.parallel.windows import Grid


class Purpose(Enum):
    """What a batch is for."""

    TRAINING = "training"
    """Forward and backward."""
    INFERENCE = "inference"
    """Forward alone."""


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


def step(counts: Counts, machine: Machine, purpose: Purpose = Purpose.TRAINING) -> PlannedStep:
    """What a batch takes there."""
    if purpose is Purpose.TRAINING:
        return _planned(counts.grid, machine, counts.costs, counts.parts, purpose)
    # Batch statistics are those of training, and nothing goes back.
    forward = [
        [replace(each, backward=0, passes=1, sums=0, summed_bytes=0) for each in layers]
        for layers in counts.costs
    ]
    return _planned(counts.grid, machine, forward, counts.parts, purpose)


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
    of_parameters = sum(each.nbytes for each in part.parameters())
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
