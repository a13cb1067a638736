"""What a job moves beside the messages of its layers, before there are processes for it. Pure.

The first process of a replica has the whole model, and alone speaks with shards. Before a step it
gives the others their parts of the values, and after it gets their parts of the gradient.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from disttrain.job.strategy_kind import Exchanges, Formats
from disttrain.parallel.layers.partitioned import Index
from disttrain.parallel.partitioned import Partitioned
from disttrain.parallel.pricing import Machine
from disttrain.replica.partition_messages import Renewal, Tensors
from disttrain.state import placement
from disttrain.state.layout import ModelLayout, TensorSpec
from disttrain.state.placement import Placement, Range
from disttrain.transport.header import ElementType


@dataclass(frozen=True, kw_only=True, slots=True)
class OfShards:
    """Bytes of trained parameters by shard. A replica has one connection to each."""

    pushed: tuple[int, ...]
    """With what a rule wants beside a gradient."""
    fetched: tuple[int, ...]

    def seconds(self, exchanges: Exchanges, machine: Machine, replicas: int) -> float:
        """Of a step's part of them.

        Each replica's first process has one line to all shards, and each shard has one to all
        replicas, which push and fetch as often as each other.
        """
        often = zip((self.pushed, self.fetched), (exchanges.pushes, exchanges.fetches), strict=True)
        return sum(
            rate
            * (
                exchanges.parts * len(nbytes) * machine.latency_seconds
                + max(sum(nbytes), replicas * max(nbytes)) / machine.bytes_per_second
            )
            for nbytes, rate in often
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OfParts:
    """Of one division of the model."""

    given_bytes: int
    """Values that go from the first process to the others before a step."""
    returned_bytes: int
    """Gradients that come back."""
    shards: tuple[tuple[int, ...], ...]
    """Of each partition: those which hold a value that it trains."""

    def seconds(self, machine: Machine) -> float:
        """Of both, on the line of the first process."""
        messages = 2 * (len(self.shards) - 1)
        nbytes = self.given_bytes + self.returned_bytes
        return messages * machine.latency_seconds + nbytes / machine.bytes_per_second


def of_shards(layout: ModelLayout, shards: int, formats: Formats, beside: int = 0) -> OfShards:
    """`beside`: vectors that a replica pushes with each gradient."""
    table = placement.place(layout, shards)
    pushed, fetched, held = (
        ElementType[each.name] for each in (formats.pushed, formats.fetched, formats.held)
    )
    return OfShards(
        pushed=tuple(
            _nbytes(table, shard, pushed) + beside * _nbytes(table, shard, held)
            for shard in range(shards)
        ),
        fetched=tuple(_nbytes(table, shard, fetched) for shard in range(shards)),
    )


def of_parts(parts: Sequence[Partitioned], layout: ModelLayout, shards: int) -> OfParts:
    """`parts`: of all partitions, in the order of ranks; they may be without values.

    `shards`: 0 where replicas hold the parameters.
    """
    table = placement.place(layout, shards)
    trained = (spec for spec in layout.tensors if spec.vector.is_trained)
    specs = {spec.name: spec for spec in trained if shards}
    others = [(part, Tensors(part, rank)) for rank, part in enumerate(parts) if rank]
    return OfParts(
        given_bytes=sum(_given(part, tensors) for part, tensors in others),
        returned_bytes=sum(tensors.room.nbytes for _, tensors in others),
        shards=tuple(tuple(sorted(_holders(part, specs, table))) for part in parts),
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


def _given(part: Partitioned, tensors: Tensors) -> int:
    values = {**dict(part.named_parameters()), **dict(part.named_buffers())}
    return sum(values[name].nbytes for name, _ in tensors.values(Renewal.RENEW))


def _holders(part: Partitioned, specs: dict[str, TensorSpec], table: Placement) -> set[int]:
    found: set[int] = set()
    pieces = part.pieces
    for name, parameter in part.named_parameters():
        spec = specs.get(name)
        if spec is None or not parameter.requires_grad:
            continue
        for run in _runs(spec, pieces.get(name)):
            found.update(held.holder for held in table.parts(spec.vector, run))
    return found


def _runs(spec: TensorSpec, index: Index | None) -> Iterator[Range]:
    """Where a part of a tensor lies in its vector: ranges without gaps."""
    if not index:
        yield Range(spec.first, spec.first + spec.elements)
        return
    bounds = [each.indices(length)[:2] for each, length in zip(index, spec.shape, strict=False)]
    *outer, (first, end) = bounds
    row = math.prod(spec.shape[len(bounds) :])
    for places in itertools.product(*(range(*each) for each in outer)):
        begin = 0
        for place, length in zip(places, spec.shape, strict=False):
            begin = begin * length + place
        begin = begin * spec.shape[len(outer)] * row + spec.first
        if first < end:
            yield Range(begin + first * row, begin + end * row)
