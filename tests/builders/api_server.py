"""Requests to an API server by hundreds, for benchmarks: no retries, no limits, no objects."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Self

import aiohttp

from disttrain_operator.cluster import answers
from disttrain_operator.cluster.client import cut_what_is_left
from disttrain_operator.cluster.credentials import Credentials, of_kubeconfig

Object = dict[str, Any]
JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class ApiServer:
    """Use as an async context manager."""

    def __init__(self, kubeconfig: Path, connections: int = 32) -> None:
        self._credentials: Credentials = of_kubeconfig(kubeconfig)
        self._connections = connections

    async def __aenter__(self) -> Self:
        context = self._credentials.ssl_context()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, ssl=context),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def post(self, path: str, body: Object) -> Object:
        """Make an object; only its metadata come back."""
        return await self._ask("POST", path, body, accept=METADATA)

    async def patch(self, path: str, body: Object, content: str = MERGE) -> Object:
        """Change an object; only its metadata come back."""
        return await self._ask("PATCH", path, body, content=content, accept=METADATA)

    async def delete(self, path: str, options: Object | None = None) -> int:
        """Delete an object, or the objects of a collection; returns the code."""
        async with self._request("DELETE", path, options or {}) as response:
            await response.read()
            return int(response.status)

    async def get(self, path: str, *, accept: str = JSON) -> Object:
        """Get an object or a list."""
        return await self._ask("GET", path, None, accept=accept)

    async def watch(
        self, path: str, version: str, *, accept: str = JSON
    ) -> AsyncGenerator[Object, None]:
        """Events of a collection after a version, for ever."""
        separator = "&" if "?" in path else "?"
        query = f"{separator}watch=1&resourceVersion={version}&timeoutSeconds=86400"
        lines = answers.Lines()
        async with self._request("GET", f"{path}{query}", None, accept=accept) as response:
            try:
                async for piece in response.content.iter_any():
                    for line in lines.add(piece):
                        yield json.loads(line)
            finally:
                cut_what_is_left(response)

    async def _ask(
        self, verb: str, path: str, body: Object | None, *, content: str = JSON, accept: str = JSON
    ) -> Object:
        async with self._request(verb, path, body, content=content, accept=accept) as response:
            text = await response.read()
            if response.status >= 400:
                message = f"{verb} {path}: {response.status} {text[:500]!r}"
                raise RuntimeError(message)
            found: Object = json.loads(text)
            return found

    def _request(
        self, verb: str, path: str, body: Object | None, *, content: str = JSON, accept: str = JSON
    ) -> Any:
        headers = {"Accept": accept, "Content-Type": content}
        data = None if body is None else json.dumps(body).encode()
        url = self._credentials.server + path
        return self._session.request(verb, url, data=data, headers=headers)
