"""Our own watches of children and pods: kopf keeps a task per object, which thousands of jobs feel.

kopf watches the jobs, of which there is one where there are twenty of these.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from disttrain.errors import DistTrainError
from disttrain_operator.cluster.answers import EventType
from disttrain_operator.cluster.client import Client, Query
from disttrain_operator.errors import Gone
from disttrain_operator.kinds import SHARED, Kind
from disttrain_operator.reconcile.relist import Relister
from disttrain_operator.telemetry import metrics

LOG = logging.getLogger(__name__)

BACKOFFS = (0.5, 1.0, 2.0, 3.0, 5.0)
"""Seconds; an API server that restarts is back within a minute."""

_PAUSE = 0.1
"""Seconds before a watch that ended is opened again: something between us and the API server may
end each of them at once."""

OnEvent = Callable[[Kind, str | None, dict[str, Any]], None]
"""Takes in an event: kind, type (DELETED, another, or None for a first list), object."""


class Follower:
    """Follows what happens after a list, and lists again where a watch cannot go on."""

    def __init__(self, client: Client, relister: Relister, on_event: OnEvent) -> None:
        self._client = client
        self._relister = relister
        self._on_event = on_event
        self._last_begun: dict[Query, float] = {}
        """Of each watch, in seconds of the event loop's clock: when it was begun last."""

    def is_alive(self, within: timedelta) -> bool:
        """Whether each watch was begun lately; none lasts for more than four minutes.

        One that fails is begun again, so an API server that is away does not count.
        """
        oldest = min(self._last_begun.values(), default=float("inf"))
        return asyncio.get_running_loop().time() - oldest < within.total_seconds()

    async def run(self, versions: Mapping[Query, str]) -> None:
        """Follow everything but jobs, and what they share, until cancelled; from a version each."""
        async with asyncio.TaskGroup() as group:
            for query, version in versions.items():
                if query.kind not in {Kind.DistTrainJob, *SHARED}:
                    group.create_task(self.follow(query, version))

    async def follow(self, query: Query, version: str) -> None:
        failures = 0
        while True:
            self._last_begun[query] = asyncio.get_running_loop().time()
            try:
                version = version or await self._relister.list(query)
                async for event in self._client.watch(query, version):
                    failures, version = 0, event.version
                    if event.type is not EventType.BOOKMARK:
                        self._on_event(query.kind, event.type, event.body)
                await asyncio.sleep(_PAUSE)
            except DistTrainError as error:
                # What is too old now stays so: only a list tells from where to go on.
                version = "" if isinstance(error, Gone) else version
                seconds = BACKOFFS[min(failures, len(BACKOFFS) - 1)]
                failures += 1
                metrics.WATCH_ERRORS.labels(query.kind.name).inc()
                LOG.warning("%s: %s; again in %.1f s", query.path, error, seconds)
                await asyncio.sleep(seconds)
