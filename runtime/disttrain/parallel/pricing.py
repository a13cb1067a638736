"""How long a batch takes a divided model on given machines. Pure, of what is counted."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from statistics import NormalDist
from typing import NamedTuple

from disttrain.parallel import micro_batches
from disttrain.parallel.counting import Counts, LayerCost
from disttrain.parallel.micro_batches import Turn
from disttrain.parallel.partitioned import Partitioned
from disttrain.parallel.windows import Grid

MESSAGES, WAITING, IDLE = "messages", "waiting for the slowest", "idle partitions"
"""What seconds of a step are for."""


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
class PartitionCost:
    """Of a batch, in training forward and backward."""

    flops: float
    parameters: int
    activation_bytes: int
    memory_bytes: int
    """Parameters and activations; in training gradients of parameters, too, every activation, and
    what has come from others for each layer, else activations of two layers. Without what torch and
    an optimizer take beside."""
    nbytes: int
    """Sent."""
    messages: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStep:
    """A batch, forward and in training backward."""

    grid: Grid
    seconds: float
    waiting_seconds: float
    """Of these, in which all wait for the slowest partition, by the jitter."""
    crossing_seconds: float
    """Of these, for messages."""
    idle_seconds: float
    """Of these, in which layers in a row on several partitions get their first slices, and finish
    their last ones, or wait for a longer stage."""
    costs: tuple[PartitionCost, ...]
    """By rank."""
    notes: tuple[str, ...]
    beside: Mapping[str, float] = field(default_factory=dict)
    """Of these, for what is not of the layers, by what it is."""

    @property
    def partitions(self) -> int:
        return self.grid.size

    def longer(self, beside: Mapping[str, float]) -> "PlannedStep":
        """By so many seconds of something else, in which nothing is computed."""
        return replace(self, seconds=self.seconds + sum(beside.values()), beside=beside)

    @property
    def shares(self) -> dict[str, float]:
        """Of the seconds, by what they are for."""
        found = {
            MESSAGES: self.crossing_seconds,
            WAITING: self.waiting_seconds,
            IDLE: self.idle_seconds,
            **self.beside,
        }
        return {name: each / self.seconds if self.seconds else 0.0 for name, each in found.items()}

    @property
    def largest(self) -> PartitionCost:
        """Of each figure, that of the partition with the most."""
        return PartitionCost(
            **{
                each.name: max(getattr(cost, each.name) for cost in self.costs)
                for each in fields(PartitionCost)
            }
        )

    @property
    def nbytes(self) -> int:
        """Sent by all partitions together."""
        return sum(each.nbytes for each in self.costs)

    @property
    def messages(self) -> int:
        return sum(each.messages for each in self.costs)


def step(counts: Counts, machine: Machine, purpose: Purpose = Purpose.TRAINING) -> PlannedStep:
    """What a batch takes there."""
    costs = counts.costs
    if purpose is Purpose.INFERENCE:
        # Batch statistics are those of training, and nothing goes back.
        costs = [
            [replace(each, backward_flops=0.0, passes=1, sums=0, summed_bytes=0) for each in layers]
            for layers in costs
        ]
    # A layer needs something of the others, so that all end the one before it together.
    found = [_seconds(layer, machine) for layer in zip(*costs, strict=True)]
    computing, idle, waiting, crossing = map(sum, zip(*found, strict=True)) if found else (0.0,) * 4
    return PlannedStep(
        grid=counts.grid,
        seconds=computing + idle + waiting + crossing,
        waiting_seconds=waiting,
        crossing_seconds=crossing,
        idle_seconds=idle,
        costs=tuple(
            _of_partition(part, layers, purpose)
            for part, layers in zip(counts.parts, costs, strict=True)
        ),
        notes=counts.parts[0].notes,
    )


class _Seconds(NamedTuple):
    """Of a layer."""

    computing: float
    """Of the partition that computes most."""
    idle: float
    waiting: float
    crossing: float


def _seconds(layer: Sequence[LayerCost], machine: Machine) -> _Seconds:
    places = [place for place, each in enumerate(layer) if each.turns]
    if places:
        return _in_turns(layer, machine, len(places))
    computing = max(each.flops + each.backward_flops for each in layer) / machine.flops_per_second
    waiting = computing * machine.jitter * slowest_of(len(layer))
    crossing = max(_moving(each, machine, len(layer)) for each in layer)
    return _Seconds(computing, 0.0, waiting, crossing)


def _in_turns(layer: Sequence[LayerCost], machine: Machine, places: int) -> _Seconds:
    """Of layers in a row that lie whole on a partition each.

    For the jitter they are one layer: the slowest of their partitions is late once.
    """
    computing = idle = crossing = 0.0
    without_messages = replace(machine, bytes_per_second=math.inf, latency_seconds=0.0)
    for is_forward in (True, False)[: layer[0].passes]:
        flops = [each.flops if is_forward else each.backward_flops for each in layer]
        longest = max(flops) / machine.flops_per_second
        least = _end(layer, without_messages, is_forward=is_forward)
        computing += longest
        idle += least - longest
        crossing += _end(layer, machine, is_forward=is_forward) - least
    return _Seconds(computing, idle, computing * machine.jitter * slowest_of(places), crossing)


def _end(layer: Sequence[LayerCost], machine: Machine, *, is_forward: bool) -> float:
    """Seconds until the last turn of a pass is over.

    A turn begins when its partition is free and what it needs has come. Messages of a partition go
    one after the other, and it computes meanwhile.
    """
    turns = {each.turn: (place, each) for place, cost in enumerate(layer) for each in cost.turns}
    order = sorted(turns, key=micro_batches.in_forward, reverse=not is_forward)
    free, sends, receives = ([0.0] * len(layer) for _ in range(3))
    came: dict[Turn, float] = {}
    for turn in order:
        place, cost = turns[turn]
        flops = cost.flops if is_forward else cost.backward_flops
        free[place] = max(free[place], came.get(turn, 0.0)) + flops / machine.flops_per_second
        then = turn._replace(stage=turn.stage + (1 if is_forward else -1))
        if then not in turns:
            continue
        to, other = turns[then]
        nbytes = cost.nbytes if is_forward else other.nbytes
        leaves = max(free[place], sends[place], receives[to])
        came[then] = leaves + machine.latency_seconds + nbytes / machine.bytes_per_second
        sends[place] = receives[to] = came[then]
    return max(free)


def _of_partition(
    part: Partitioned, layers: Sequence[LayerCost], purpose: Purpose
) -> PartitionCost:
    of_parameters = sum(each.nbytes for each in part.parameters())
    outputs = [output for each in layers for output in each.outputs]
    if purpose is Purpose.TRAINING:
        # Backward needs what a layer has looked at, as all features in each part of a Linear.
        memory = 2 * of_parameters + sum(outputs) + sum(each.received.nbytes for each in layers)
    else:
        memory = of_parameters + max(map(sum, itertools.pairwise([0, *outputs])), default=0)
    return PartitionCost(
        flops=sum(each.flops + each.backward_flops for each in layers),
        parameters=sum(each.numel() for each in part.parameters()),
        activation_bytes=sum(outputs),
        memory_bytes=memory,
        # Backward sends back what came.
        nbytes=sum(each.sent.nbytes + (each.passes - 1) * each.received.nbytes for each in layers),
        messages=sum(
            each.sent.messages + (each.passes - 1) * each.received.messages for each in layers
        ),
    )


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
