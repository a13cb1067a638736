"""kopf's watch of jobs."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import kopf

from disttrain_operator.cluster.credentials import Credentials
from disttrain_operator.handlers import session
from disttrain_operator.handlers.storage import NoDiffBase, NoProgress
from disttrain_operator.kinds import Kind

_CHUNK = 20
"""Jobs of a list: the largest that the API server stores must fit into memory together."""

_BACKOFFS = (0.5, 1, 2, 3, 5)
"""Seconds; an API server that restarts is back within a minute, and kopf goes on by itself."""

_IDLE_SECONDS = 1.0
"""kopf keeps a task per object for so long after its last event."""

OnEvent = Callable[[Kind, str | None, dict[str, Any]], None]
"""Takes in an event: kind, type (DELETED, another, or None for a first list), object."""


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
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()
    settings.networking.error_backoffs = _BACKOFFS
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
            server=credentials.server, aiohttp_session=session.of(credentials)
        )

    resource = Kind.DistTrainJob.value
    group, _, version = resource.api_version.rpartition("/")

    @kopf.on.event(group, version, resource.plural, registry=registry)
    async def handle(event: Any, **_: Any) -> None:
        on_event(Kind.DistTrainJob, event["type"], event["object"])

    return registry
