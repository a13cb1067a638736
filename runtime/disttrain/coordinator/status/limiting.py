"""What limits the speed: one sentence from how the replicas spend their time. Pure."""

from collections.abc import Sequence

from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport

_LIMITS_FROM = 0.25
"""A wait that takes less is no advice: without it the job would be a third faster at most."""
_BUSY_SHARD = 0.8

TimeShares = dict[str, float]
"""Fractions of the replicas' time, by what they do: computing, or waiting for one of three."""


def time_shares(replicas: Sequence[ReplicaReport]) -> TimeShares | None:
    """Over all replicas; None before the first step."""
    seconds = {
        "computing": sum(report.compute_seconds for report in replicas),
        "data": sum(report.data_seconds for report in replicas),
        "push": sum(report.push_seconds for report in replicas),
        "fetch": sum(report.fetch_seconds for report in replicas),
    }
    whole = sum(seconds.values())
    return {name: part / whole for name, part in seconds.items()} if whole > 0 else None


def busiest(shards: Sequence[ShardReport]) -> float:
    """The largest fraction of its time that a shard worked."""
    return max((s.busy_seconds / s.uptime_seconds for s in shards if s.uptime_seconds), default=0.0)


def limit(shares: TimeShares | None, busiest_shard: float) -> str:
    if shares is None:
        return "Nothing has been computed yet."
    largest = max(("data", "push", "fetch"), key=lambda name: shares[name])
    if shares[largest] < _LIMITS_FROM:
        return f"Computing: the replicas compute {shares['computing']:.0%} of their time."
    if largest != "data" and busiest_shard >= _BUSY_SHARD:
        return (
            f"The shards: the busiest one works {busiest_shard:.0%} of its time while the "
            f"replicas wait; try more shards."
        )
    return f"{largest.capitalize()}: the replicas wait {shares[largest]:.0%} of their time for it."
