"""The watches: of jobs by kopf, of children and pods by our own.

kopf keeps a task per object, which thousands of jobs feel: there are twenty of the others for each
of them. It reads JSON by the standard library, which ends on a job that is nested too deeply, and
with it the operator: so its connection gives it no more of a job than may be parsed. Its lists of
storages are empty: nothing is stored in an object, so that none costs a patch.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

import aiohttp
import kopf

from disttrain.errors import DistTrainError
from disttrain_operator import json_text
from disttrain_operator.cluster.answers import EventType, Lines
from disttrain_operator.cluster.client import Client, Query
from disttrain_operator.cluster.credentials import Credentials
from disttrain_operator.errors import Gone
from disttrain_operator.json_text import Level
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


_CHUNK = 20
"""Jobs of a list: the largest that the API server stores must fit into memory together."""

_IDLE_SECONDS = 1.0
"""kopf keeps a task per object for so long after its last event."""


class NoDiffBase(kopf.MultiDiffBaseStorage):
    """Keeps no last state: nothing here asks what changed."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> Any:
        """Copy nothing: kopf does it for each event otherwise."""
        del body, extra_fields
        return {}


async def run(
    credentials: Credentials,
    namespaces: tuple[str, ...],
    on_event: OnEvent,
    ready: asyncio.Event,
) -> None:
    """Watch until cancelled; `ready` is set once kopf runs."""
    # kopf tells each event of each object otherwise.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    await kopf.operator(
        registry=_registry(credentials, on_event),
        settings=_settings(),
        namespaces=namespaces,
        clusterwide=not namespaces,
        standalone=True,
        ready_flag=ready,
    )


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    # Which kinds there are is known, and looking for namespaces needs rights of its own.
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = NoDiffBase([])
    settings.persistence.progress_storage = kopf.MultiProgressStorage([])
    settings.networking.error_backoffs = BACKOFFS
    settings.networking.request_timeout = 60
    settings.networking.connect_timeout = 10
    settings.watching.chunk_size = _CHUNK
    settings.queueing.idle_timeout = _IDLE_SECONDS
    return settings


def _registry(credentials: Credentials, on_event: OnEvent) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(
            server=credentials.server, aiohttp_session=session_of(credentials)
        )

    resource = Kind.DistTrainJob.value
    group, _, version = resource.api_version.rpartition("/")

    @kopf.on.event(group, version, resource.plural, registry=registry)
    async def handle(event: Any, **_: Any) -> None:
        on_event(Kind.DistTrainJob, event["type"], event["object"])

    return registry


def session_of(credentials: Credentials) -> aiohttp.ClientSession:
    """A session that is logged in; kopf closes it."""
    token = credentials.read_token()
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=credentials.ssl_context()),
        headers={"Authorization": f"Bearer {token}"} if token else {},
        response_class=_Response,
    )


class _Response(aiohttp.ClientResponse):
    """An answer to a list, or the stream of a watch."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        started = await super().start(connection)
        self.content = _Content(self.content)  # type: ignore[assignment] # What kopf asks for.
        return started

    async def json(self, **_: Any) -> Any:
        return json_text.read_jobs(await self.read(), Level.LIST)


class _Content:
    """The content of an answer; read in chunks, which only watches are, it comes line by line."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        lines = Lines()
        async for piece in self._content.iter_chunked(size):
            for line in lines.add(piece):
                yield json_text.without_excess(line, Level.EVENT) + b"\n"
