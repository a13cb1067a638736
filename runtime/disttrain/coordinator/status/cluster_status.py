"""When to send the coordinator's part of the status of the job's object, and in what form. Pure.

Sent by server-side apply: a patch holds every field that the coordinator owns, or the API server
would remove the others.
"""

import json
import random
from dataclasses import dataclass
from typing import Any

from disttrain.coordinator.status import status
from disttrain.job import spec

Json = dict[str, Any]

EVERY_SECONDS = 10.0
"""Least time between two patches; a random part is added, so that jobs do not keep step."""
STEADY_SECONDS = 30.0
"""The same once training has gone on for long: thousands of jobs write to one API server, and
nobody follows each of them for hours."""
STEADY_AFTER_SECONDS = 300.0
LARGEST_BYTES = 16 * 1024
_JITTER = 0.2
_LONGEST_PAUSE_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class JobObject:
    """Which object: the uid tells it from a later one of the same name."""

    name: str
    namespace: str
    uid: str


class Patches:
    """Decides what to send. Belongs to the coordinator's thread."""

    def __init__(self, job: JobObject, chance: random.Random) -> None:
        self._job = job
        self._chance = chance
        self._taken: Json | None = None
        """What the API server has."""
        self._next = 0.0
        self._first: float | None = None
        """When this process sent something first."""
        self._failures = 0

    def due(self, now: float) -> bool:
        return now >= self._next

    def take(self, wanted: Json, now: float) -> bytes | None:
        """The patch to send now; None if the API server has it already."""
        self._first = now if self._first is None else self._first
        is_steady = now - self._first >= STEADY_AFTER_SECONDS
        self._next = now + self._pause(STEADY_SECONDS if is_steady else EVERY_SECONDS)
        return None if wanted == self._taken else encode(self._job, wanted)

    def answered(self, wanted: Json, *, is_taken: bool) -> None:
        """What came of it; after failures the pauses become longer."""
        self._taken = wanted if is_taken else None
        self._failures = 0 if is_taken else self._failures + 1

    def _pause(self, usual: float) -> float:
        longer = usual * 2.0 ** min(self._failures, 8)
        return min(longer, _LONGEST_PAUSE_SECONDS) * (1 + _JITTER * self._chance.random())


def encode(job: JobObject, wanted: Json) -> bytes:
    """The patch, without the details that would make it too large."""
    for told in (wanted, _without_shards(wanted), _without_measures(wanted)):
        content = json.dumps(_patch(job, status.finite(told)), allow_nan=False).encode()
        if len(content) <= LARGEST_BYTES:
            break
    return content


def _patch(job: JobObject, told: Json) -> Json:
    return {
        "apiVersion": spec.API_VERSION,
        "kind": spec.KIND,
        "metadata": {"name": job.name, "namespace": job.namespace, "uid": job.uid},
        "status": told,
    }


def _without_shards(wanted: Json) -> Json:
    servers = {key: value for key, value in wanted["parameterServer"].items() if key != "shards"}
    return {**wanted, "parameterServer": servers}


def _without_measures(wanted: Json) -> Json:
    training = {key: value for key, value in wanted["training"].items() if key != "metrics"}
    return {**_without_shards(wanted), "training": training}
