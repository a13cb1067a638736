"""Workloads without pods of which only Events of their controllers tell why, and when to ask.

Nobody watches Events: the API server reads all of the cluster for each who does. Pure.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from disttrain.job.names import Role
from disttrain_operator import times, untrusted
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.observed import parsing
from disttrain_operator.observed.records import ChildRecord

PATIENCE: Final = timedelta(seconds=10)
"""A controller that may make pods has made some in less."""

AGAIN: Final = timedelta(minutes=1)
"""After a first answer; the waits between questions double from there."""

_SELDOM: Final = timedelta(minutes=10)

REASON: Final = "FailedCreate"
"""Of the Events that tell why a workload cannot create its pods."""

_MOST: Final = 3
"""Workloads of a role that are asked for; the others lack pods for the same reason."""

_TELLS_ITSELF: Final = Kind.ReplicaSet
"""Has a condition that says the same."""


@dataclass(frozen=True, slots=True)
class Lack:
    """A workload that has had too few pods for a while."""

    since: datetime
    asked: datetime | None = None
    """When its Events were read last."""
    said: str = ""
    """Why pods cannot be created, as its controller said; empty: it said nothing."""


def lacks_pods(child: ChildRecord) -> bool:
    running = child.kind in WORKLOADS and child.ended is None and not child.deleting
    return running and child.remaining < child.wanted


def lacks(
    children: Collection[ChildRecord], before: Mapping[str, Lack], now: datetime
) -> dict[str, Lack]:
    """What lacks pods, by its uid, with what is known of that from before."""
    found = (child.uid for child in children if lacks_pods(child))
    return {uid: before.get(uid) or Lack(now) for uid in found}


def unexplained(
    children: Collection[ChildRecord], known: Mapping[str, Lack], now: datetime
) -> tuple[str, ...]:
    return tuple(uid for uid, at in _due(children, known) if at <= now)


def next_instant(children: Collection[ChildRecord], known: Mapping[str, Lack]) -> datetime | None:
    return min((at for _, at in _due(children, known)), default=None)


def newest(events: Collection[Mapping[str, Any]]) -> str:
    """What the last of some Events says; empty if there is none."""
    last = max(events, key=_told_at, default=None)
    return "" if last is None else untrusted.text(last.get("message"))


def _due(
    children: Collection[ChildRecord], known: Mapping[str, Lack]
) -> list[tuple[str, datetime]]:
    lacking = [
        child
        for child in children
        if child.kind is not _TELLS_ITSELF and not child.trouble and child.uid in known
    ]
    asked: dict[Role | None, list[ChildRecord]] = {}
    for child in sorted(lacking, key=lambda child: child.name):
        asked.setdefault(child.role, []).append(child)
    chosen = (child for each in asked.values() for child in each[:_MOST])
    return [(child.uid, _due_at(known[child.uid])) for child in chosen]


def _due_at(lack: Lack) -> datetime:
    if lack.asked is None:
        return lack.since + PATIENCE
    return lack.asked + min(max(AGAIN, lack.asked - lack.since), _SELDOM)


def _told_at(event: Mapping[str, Any]) -> datetime:
    seen = (event.get(name) for name in ("lastTimestamp", "eventTime", "firstTimestamp"))
    return next((found for each in seen if (found := times.parse(each))), parsing.LONG_AGO)
