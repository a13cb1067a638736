"""What members tell in each heartbeat.

Every number counts from the start of that process: a report may be sent twice, or never.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from typing import Annotated, Any, TypeVar

from pydantic import Field

from disttrain.coordinator.protocol.fields import (
    LENIENT,
    NO_PROGRESS,
    Count,
    LostUpdates,
    Progress,
    Strict,
    Text,
)

STALENESS_BOUNDS: tuple[int, ...] = (*range(32), *(2**power for power in range(5, 21)))
"""Lower bounds of the staleness histogram's buckets: exact up to 32, then doubling; the last one is
open.
"""


Name = Annotated[str, Field(max_length=64)]
"""Of a scalar that the task's loss reports, or a replica's index."""


def staleness_bucket(staleness: int) -> int:
    """Index of the bucket that a staleness of 0 or more falls into."""
    if staleness < 32:
        return max(staleness, 0)
    return min(32 + staleness.bit_length() - 6, len(STALENESS_BOUNDS) - 1)


def staleness_quantile(histogram: Iterable[int], fraction: float) -> int | None:
    """Lower bound of the bucket that holds the quantile; None without any measurement."""
    counts = list(histogram)
    wanted = sum(counts) * fraction
    seen = 0
    for bound, count in zip(STALENESS_BOUNDS, counts, strict=False):
        seen += count
        if count and seen >= wanted:
            return bound
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaReport(Strict):
    """A replica's counters since its process started."""

    progress: Progress = NO_PROGRESS
    steps: Count = 0
    """Steps computed."""
    pushes: Count = 0
    """Pushes acknowledged by all shards."""
    loss_sum: float = 0.0
    """Sum over steps of the batch's mean loss; `loss_steps` of them, finite ones only."""
    loss_steps: Count = 0
    reported_sums: dict[Name, float] = field(default_factory=dict)
    """Scalars that the task's loss reported: sums over steps by name; `reported_steps` of them."""
    reported_steps: dict[Name, Count] = field(default_factory=dict)
    non_finite: Count = 0
    """Gradients that were not finite and therefore not pushed."""
    non_finite_lease: Count = 0
    """Lease of the last one."""
    staleness: tuple[Count, ...] = ()
    """Histogram of the pushes' staleness over `STALENESS_BOUNDS`."""
    staleness_unknown: Count = 0
    compute_seconds: float = 0.0
    data_seconds: float = 0.0
    """The step waited for data or for a lease."""
    push_seconds: float = 0.0
    """The step waited for a push."""
    fetch_seconds: float = 0.0
    """The step waited for a fetch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted(Strict):
    """How the parameters are predicted that a replica is served."""

    mean_staleness: float
    """Of its latest pushes: rounded down, so many updates ahead and one more."""
    error: float
    """Distance of what was predicted from what came, by the distance without a prediction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardReport(Strict):
    """A shard's counters since its process started (version: since the job started)."""

    __pydantic_config__ = LENIENT

    version: Count = 0
    applied: Count = 0
    """Updates applied completely."""
    refused: dict[str, Count] | None = None
    """Requests refused, by reason."""
    staleness: tuple[Count, ...] = ()
    """Histogram of the applied pushes' staleness over `STALENESS_BOUNDS`."""
    staleness_unknown: Count = 0
    shortened: Count = 0
    """Pushes scaled down to the norm that the manifest allows."""
    busy_seconds: float = 0.0
    """Time its thread spent on requests (not waiting)."""
    uptime_seconds: float = 0.0
    rate: float | None = None
    """The learning rate of the next update; None: it has none, or no values yet."""
    state: Text = ""
    """One word for the display: "serving", "restoring", "checkpointing", ..."""
    uncounted: Count = 0
    """Incarnations of senders whose losses it could not count if it died now: its disk is full.

    One more for all those of which what was counted is damaged.
    """
    predicted: dict[Name, Predicted] = field(default_factory=dict)
    """By the index of a replica that pushes, if anything is predicted."""
    lost: tuple[LostUpdates, ...] = ()
    """Of senders of whom one update less is lost than this incarnation said when it joined."""


_Report = TypeVar("_Report", ReplicaReport, ShardReport)


def added(old: _Report, new: _Report) -> _Report:
    """A report whose numbers and histograms are the sums; everything else is the newer one's."""
    sums: dict[str, Any] = {
        item.name: _sum(getattr(old, item.name), getattr(new, item.name))
        for item in fields(new)
        if item.name not in {"version", "rate", "predicted"}
    }
    return replace(new, **sums)


def _sum(old: object, new: object) -> object:
    if isinstance(old, int | float) and isinstance(new, int | float):
        return old + new
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: old.get(key, 0) + new.get(key, 0) for key in {*old, *new}}
    if isinstance(old, tuple) and isinstance(new, tuple) and _are_counts(old + new):
        return tuple(a + b for a, b in zip_longest(old, new, fillvalue=0))
    return new


def _are_counts(values: tuple[object, ...]) -> bool:
    return all(isinstance(value, int) for value in values)
