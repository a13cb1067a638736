"""What a job moves beside the messages of its layers, before there are processes for it. Pure.

Each partition of a replica speaks with the shards that hold what is trained in it, all at the same
time. What every partition has comes from the first one before a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from torch import nn

from disttrain.job.strategy_kind import Exchanges, Formats, Precision
from disttrain.parallel.partitioned import Partitioned
from disttrain.parallel.pricing import Machine
from disttrain.replica import division, partition_values
from disttrain.state import placement
from disttrain.state.placement import Placement
from disttrain.transport.header import ElementType


@dataclass(frozen=True, kw_only=True, slots=True)
class OfPartition:
    """Bytes of trained parameters by shard. A partition has one connection to each of its own."""

    shards: tuple[int, ...]
    """Its own, in the order of the bytes."""
    pushed: tuple[int, ...]
    """With what a rule wants beside a gradient."""
    fetched: tuple[int, ...]

    def seconds(self, exchanges: Exchanges, machine: Machine, replicas: int) -> float:
        """Of a step's part of them.

        The partition has one line to all of its shards, and each shard has one to all replicas,
        which push and fetch as often as each other.
        """
        often = zip((self.pushed, self.fetched), (exchanges.pushes, exchanges.fetches), strict=True)
        return sum(
            rate
            * (
                exchanges.parts * len(nbytes) * machine.latency_seconds
                + max(sum(nbytes), replicas * max(nbytes)) / machine.bytes_per_second
            )
            for nbytes, rate in often
            if nbytes
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OfReplica:
    """Of one division of the model."""

    partitions: tuple[OfPartition, ...]
    """Empty where replicas hold the parameters."""
    shared_bytes: int
    """Parameters and buffers that all partitions have."""
    shared_messages: int
    """One for each type of them, to each other partition."""

    def shard_seconds(self, exchanges: Exchanges, machine: Machine, replicas: int) -> float:
        """Of pushes and fetches, where no other partition takes longer."""
        found = (each.seconds(exchanges, machine, replicas) for each in self.partitions)
        return max(found, default=0.0)

    def shared_seconds(self, machine: Machine, partitions: int) -> float:
        """Of what all have, on the line of the first partition."""
        nbytes = (partitions - 1) * self.shared_bytes
        return self.shared_messages * machine.latency_seconds + nbytes / machine.bytes_per_second


def of_replica(
    parts: Sequence[Partitioned],
    model: nn.Module,
    shards: int,
    formats: Formats,
    beside: int = 0,
    precision: Precision = Precision.FLOAT32,
) -> OfReplica:
    """`parts`: of all partitions of the model, in the order of ranks; they may be without values.

    `shards`: 0 where replicas hold the parameters. `beside`: vectors that a replica pushes with
    each gradient.
    """
    shared = partition_values.of_all(parts[0]) if len(parts) > 1 else []
    found: tuple[OfPartition, ...] = ()
    if shards:
        layout = division.layout_of(parts, model, precision, MappingProxyType({}))
        table = placement.place(layout, shards)
        found = tuple(_of_partition(table, rank, formats, beside) for rank in range(len(parts)))
    return OfReplica(
        partitions=found,
        shared_bytes=sum(each.nbytes for each in shared),
        shared_messages=(len(parts) - 1) * len({each.dtype for each in shared}),
    )


def _of_partition(table: Placement, rank: int, formats: Formats, beside: int) -> OfPartition:
    own = table.holders_of(rank)
    pushed, fetched, held = (
        ElementType[each.name] for each in (formats.pushed, formats.fetched, formats.held)
    )
    return OfPartition(
        shards=tuple(own),
        pushed=tuple(
            _nbytes(table, shard, pushed) + beside * _nbytes(table, shard, held) for shard in own
        ),
        fetched=tuple(_nbytes(table, shard, fetched) for shard in own),
    )


def _nbytes(table: Placement, shard: int, on_the_way: ElementType) -> int:
    """On their way in fewer bits are only numbers of single precision."""
    total = 0
    for vector, held in table.ranges(shard).items():
        if vector.is_trained:
            is_single = vector.element_type is ElementType.FLOAT32
            sent = vector.rounded(on_the_way if is_single else None)
            total += sent.place_of(held.first, held.count)[1]
    return total
