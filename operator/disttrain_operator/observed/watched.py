"""Observations of objects, as watches and lists bring them, into the inventory. Pure."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from disttrain_operator import untrusted
from disttrain_operator.kinds import CHILDREN, SHARED, WORKLOADS, Kind
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Change, Inventory, Record
from disttrain_operator.observed.records import JobKey

LOG = logging.getLogger(__name__)

KINDS: Final = (Kind.DistTrainJob, *SHARED, *CHILDREN, Kind.Pod)
"""All that is listed, and watched but for what jobs share: nothing follows from it."""

DECISIVE: Final = (*WORKLOADS, Kind.Pod)
"""What decides whether a job goes on."""

STATELESS: Final = frozenset({*SHARED, *CHILDREN}) - {*WORKLOADS, Kind.PersistentVolumeClaim}
"""Kinds of which only the metadata matter."""


class Observation(NamedTuple):
    """What an observation of an object means."""

    job: JobKey
    change: Change


NOTHING: Final = Observation(JobKey("", ""), Change.NOTHING)
"""Of an object that belongs to no job."""


class Observer:
    """Takes in what was seen."""

    def __init__(self, inventory: Inventory, own_fields: frozenset[str]) -> None:
        self._inventory = inventory
        self._own_fields = own_fields
        self._listings: list[set[str]] = []

    @contextmanager
    def listing(self) -> Iterator[set[str]]:
        gone: set[str] = set()
        self._listings.append(gone)
        try:
            yield gone
        finally:
            self._listings.remove(gone)

    def seen(self, kind: Kind, body: dict[str, Any]) -> Observation:
        """Keep an object; returns what changed. Raises nothing, whatever stands in it."""
        return _apart(self._seen, kind, body)

    def gone(self, kind: Kind, body: dict[str, Any]) -> Observation:
        """Forget an object; returns what changed. Raises nothing, either."""
        return _apart(self._gone, kind, body)

    def _seen(self, kind: Kind, body: dict[str, Any]) -> Observation:
        record = self._record(kind, body)
        return NOTHING if record is None else Observation(record.job, self._inventory.put(record))

    def _record(self, kind: Kind, body: dict[str, Any]) -> Record | None:
        if kind is Kind.DistTrainJob:
            return parsing.job(body, self._own_fields)
        return parsing.pod(body) if kind is Kind.Pod else parsing.child(kind, body)

    def _gone(self, kind: Kind, body: dict[str, Any]) -> Observation:
        metadata = untrusted.mapping(body, "metadata")
        name, uid = str(metadata.get("name")), str(metadata.get("uid"))
        for listing in self._listings:
            listing.add(uid)
        if kind is Kind.Pod:
            self._seen(kind, body)
        is_job = kind is Kind.DistTrainJob
        key = JobKey(str(metadata.get("namespace")), name) if is_job else parsing.job_key(body)
        dropped = self._inventory.drop_at(key, (kind, name), uid)
        return Observation(key, Change.DECISIVE if dropped else Change.NOTHING)


_Take = Callable[[Kind, dict[str, Any]], Observation]


def _apart(take: _Take, kind: Kind, body: dict[str, Any]) -> Observation:
    """Take an object in; one that cannot be taken in ends no watch of all the others."""
    try:
        return take(kind, body)
    except Exception:
        metadata = untrusted.mapping(body, "metadata")
        name = f"{kind.name} {metadata.get('namespace')}/{metadata.get('name')}"
        LOG.exception("%.200s cannot be understood; it is passed over", name)
        return NOTHING
