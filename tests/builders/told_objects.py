"""When watches tell of new objects, for benchmarks."""

import asyncio
import time
from typing import NamedTuple

from builders.api_server import METADATA, METADATA_LIST, ApiServer
from disttrain_operator.kinds import Kind


class Told(NamedTuple):
    """When the last object was told of, on the machine's monotonic clock, and what it was."""

    at: float
    kind: Kind


class ToldObjects:
    """New objects of jobs in a namespace, as watches tell of them."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._open = asyncio.Semaphore(0)
        self._seen = asyncio.Semaphore(0)
        self._last = Told(0.0, Kind.DistTrainJob)

    async def watch(self, api: ApiServer, kind: Kind) -> None:
        """Take in new objects of a kind until cancelled."""
        path = kind.value.path(self._namespace) + "?labelSelector=disttrain.dev/job-uid"
        listed = await api.get(f"{path}&limit=1", accept=METADATA_LIST)
        self._open.release()
        version = listed["metadata"]["resourceVersion"]
        async for event in api.watch(path, version, accept=METADATA):
            if event["type"] == "ADDED":
                self._last = Told(time.monotonic(), kind)
                self._seen.release()

    async def are_open(self, number: int) -> None:
        """Return when so many watches are open."""
        for _ in range(number):
            await self._open.acquire()

    async def all(self, number: int) -> Told:
        """Return the last of so many objects."""
        async with asyncio.timeout(60):
            for _ in range(number):
                await self._seen.acquire()
        return self._last
