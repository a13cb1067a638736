"""kopf's connection to the API server, whose answers hold no more of a job than may be parsed.

kopf reads JSON by the standard library, which ends on a job that is nested too deeply, and with it
the operator.
"""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from disttrain_operator import json_text
from disttrain_operator.cluster.credentials import Credentials
from disttrain_operator.cluster.streams import Lines
from disttrain_operator.json_text import Level


def of(credentials: Credentials) -> aiohttp.ClientSession:
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
