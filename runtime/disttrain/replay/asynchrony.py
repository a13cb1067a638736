"""What asynchrony did: how old gradients were, and how far the parameters had moved. Pure."""

import math
import statistics
from dataclasses import dataclass, field

import torch
from torch import Tensor

from disttrain.holder.values import Values
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.replica.work import WorkItem
from disttrain.state.share import Part
from disttrain.transport.header import Header


@dataclass(frozen=True, kw_only=True, slots=True)
class Delays:
    """Of one replica, over all of its incarnations."""

    replica: int
    pushes: int
    staleness_p50: int
    staleness_p99: int
    staleness_max: int
    histogram: dict[int, int]
    """Pushes by staleness, on the shard that applied each of them last."""
    distance_mean: float
    """Between the parameters a gradient was computed on and those it met: 2-norm."""
    distance_max: float
    relative_distance_mean: float
    """The same over the norm of the parameters met."""


@dataclass(slots=True)
class PushUnderWay:
    """One push, until every shard has answered."""

    computed_on: Tensor
    """A copy of the parameters of its first gradient."""
    items: tuple[WorkItem, ...]
    """The batches whose gradients it carries."""
    waiting: int
    """Shards that have not answered it."""
    squared_distance: float = 0.0
    """Between `computed_on` and the parameters that it met, over the chunks so far."""
    squared_norm: float = 0.0
    """Of the parameters that it met."""


@dataclass(slots=True)
class Observer:
    """Collects from every push that all shards have answered."""

    under_way: dict[tuple[SenderIncarnation, int], PushUnderWay] = field(default_factory=dict)
    """By sender and number."""
    found: dict[int, list[tuple[int, float, float]]] = field(default_factory=dict)
    """By replica, of each push: its staleness, the distance, and that over the norm."""
    order: list[tuple[WorkItem, ...]] = field(default_factory=list)
    """The batches of each push, in the order in which the last shard applied them."""

    def meets(self, header: Header, values: Values) -> None:
        """A chunk of a push is about to be applied to these values."""
        push = self.under_way[SenderIncarnation.of(header), header.sequence]
        vector = values.vector_of(header)
        if vector is None or not vector.is_trained or not header.count:
            return
        met = values.part(Part(vector, header.chunk, header.first, header.count))
        computed_on = push.computed_on[header.first : header.first + header.count]
        moved = met - computed_on.to(met.device)
        push.squared_distance += float(torch.dot(moved, moved))
        push.squared_norm += float(torch.dot(met, met))

    def answered(self, incarnation: SenderIncarnation, number: int, staleness: int) -> None:
        """A shard has applied or refused a push, at this staleness."""
        push = self.under_way[incarnation, number]
        push.waiting -= 1
        if push.waiting:
            return
        del self.under_way[incarnation, number]
        distance, norm = math.sqrt(push.squared_distance), math.sqrt(push.squared_norm)
        self.order.append(push.items)
        relative = distance / norm if norm else 0.0
        self.found.setdefault(incarnation.sender, []).append((staleness, distance, relative))

    def delays(self) -> tuple[Delays, ...]:
        return tuple(self._of(replica) for replica in sorted(self.found))

    def _of(self, replica: int) -> Delays:
        unsorted, distances, relative = zip(*self.found[replica], strict=True)
        staleness = sorted(unsorted)
        last = len(staleness) - 1
        return Delays(
            replica=replica,
            pushes=len(staleness),
            staleness_p50=staleness[last // 2],
            staleness_p99=staleness[math.ceil(0.99 * last)],
            staleness_max=staleness[-1],
            histogram={value: staleness.count(value) for value in sorted(set(staleness))},
            distance_mean=statistics.fmean(distances),
            distance_max=max(distances),
            relative_distance_mean=statistics.fmean(relative),
        )
