"""The HTTP port for metrics, liveness and readiness.

Everybody on the pod network may connect, so what a stranger can hold is bounded: a few
connections, each for a few seconds.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import exposition

from disttrain_operator.telemetry import metrics

Check = Callable[[], bool]

MOST_CONNECTIONS = 64
"""Open at once. One more ends the oldest, which a scrape, done in milliseconds, never is."""
_SILENCE_SECONDS = 5.0
"""A connection without a whole request for so long is closed."""
_BACKLOG = 64


@asynccontextmanager
async def serving(
    port: int, *, alive: Check, ready: Check, before_metrics: Callable[[], None]
) -> AsyncIterator[None]:
    application = web.Application()
    application.add_routes(
        [
            web.get("/healthz", _answering(alive)),
            web.get("/readyz", _answering(ready)),
            web.get("/metrics", _metrics(before_metrics)),
        ]
    )
    # Unpacking what a stranger sends along would take seconds of the thread that does all else.
    runner = web.AppRunner(
        application, access_log=None, keepalive_timeout=_SILENCE_SECONDS, auto_decompress=False
    )
    await runner.setup()
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(_bounded(runner.server), port=port, backlog=_BACKLOG)
    try:
        yield
    finally:
        listener.close()
        await runner.cleanup()


def _bounded(server: web.Server | None) -> Callable[[], asyncio.Protocol]:
    if server is None:
        message = "a runner has its server only once it is set up"
        raise AssertionError(message)

    def admit() -> asyncio.Protocol:
        for oldest in server.connections[: len(server.connections) - MOST_CONNECTIONS + 1]:
            oldest.force_close()
        return server()

    return admit


_Handler = Callable[[web.Request], Awaitable[web.Response]]


def _answering(check: Check) -> _Handler:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if check() else web.Response(status=503, text="no\n")

    return handle


def _metrics(before: Callable[[], None]) -> _Handler:
    async def handle(_: web.Request) -> web.Response:
        before()
        content = exposition.generate_latest(metrics.REGISTRY)
        return web.Response(body=content, headers={"Content-Type": exposition.CONTENT_TYPE_LATEST})

    return handle
