"""The HTTP port for metrics, liveness and readiness."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import exposition

from disttrain_operator.telemetry import metrics

Check = Callable[[], bool]


@asynccontextmanager
async def serving(
    port: int, *, alive: Check, ready: Check, before_metrics: Callable[[], None]
) -> AsyncIterator[None]:
    """Serve while the context lasts."""
    application = web.Application()
    application.add_routes(
        [
            web.get("/healthz", _answering(alive)),
            web.get("/readyz", _answering(ready)),
            web.get("/metrics", _metrics(before_metrics)),
        ]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    try:
        yield
    finally:
        await runner.cleanup()


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
