"""What asynchrony did: how old gradients were, and how far the parameters had moved. Pure."""

import math
import statistics
from dataclasses import dataclass, field

from disttrain.parameter_server.deliveries import SenderLife
from disttrain.replay.exchange import PushUnderWay
from disttrain.replica.work import WorkItem


@dataclass(frozen=True, kw_only=True, slots=True)
class Delays:
    """Of one replica, over all of its lives."""

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
class Observer:
    """Collects from every push that all shards have applied."""

    staleness: dict[int, list[int]] = field(default_factory=dict)
    distances: dict[int, list[float]] = field(default_factory=dict)
    relative: dict[int, list[float]] = field(default_factory=dict)
    order: list[tuple[WorkItem, ...]] = field(default_factory=list)
    """The batches of each push, in the order in which the last shard applied them."""

    def applied(self, life: SenderLife, push: PushUnderWay, staleness: int) -> None:
        distance = math.sqrt(push.squared_distance)
        norm = math.sqrt(push.squared_norm)
        self.order.append(push.items)
        self.staleness.setdefault(life.sender, []).append(staleness)
        self.distances.setdefault(life.sender, []).append(distance)
        self.relative.setdefault(life.sender, []).append(distance / norm if norm else 0.0)

    def delays(self) -> tuple[Delays, ...]:
        """By replica."""
        return tuple(self._of(replica) for replica in sorted(self.staleness))

    def _of(self, replica: int) -> Delays:
        staleness = sorted(self.staleness[replica])
        last = len(staleness) - 1
        return Delays(
            replica=replica,
            pushes=len(staleness),
            staleness_p50=staleness[last // 2],
            staleness_p99=staleness[math.ceil(0.99 * last)],
            staleness_max=staleness[-1],
            histogram={value: staleness.count(value) for value in sorted(set(staleness))},
            distance_mean=statistics.fmean(self.distances[replica]),
            distance_max=max(self.distances[replica]),
            relative_distance_mean=statistics.fmean(self.relative[replica]),
        )
