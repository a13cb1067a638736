"""Requests to the API server. The only module that makes any."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import aiohttp

from disttrain.job.cluster_names import OPERATOR_FIELD_MANAGER
from disttrain_operator.cluster import answers
from disttrain_operator.cluster.credentials import Credentials
from disttrain_operator.errors import Unavailable
from disttrain_operator.kinds import Kind
from disttrain_operator.telemetry import metrics

Object = dict[str, Any]

_LIMIT = timedelta(seconds=20)
"""For one request. The API server answers within a second or is in trouble."""

_CONNECTIONS = 32
"""At once; more only wait inside the API server."""

_TOKEN_LIFE_SECONDS = 60.0
_CHUNK = 500
_JSON = "application/json"
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_STRICT = {"fieldValidation": "Strict"}
_OURS = {"fieldManager": OPERATOR_FIELD_MANAGER}


class Client:
    """Use as an async context manager, within one event loop."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._token: str | None = None
        self._token_read_at = -_TOKEN_LIFE_SECONDS

    async def __aenter__(self) -> Self:
        """Open the connections."""
        connector = aiohttp.TCPConnector(
            limit=_CONNECTIONS, ssl=self._credentials.ssl_context(), keepalive_timeout=60
        )
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=_LIMIT.total_seconds())
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """An object as it is now."""
        return await self._call("GET", f"{kind.value.path(namespace)}/{name}")

    async def create(self, kind: Kind, body: Object, *, dry_run: bool = False) -> Object:
        """Make an object; unknown fields are refused."""
        parameters = {**_OURS, **_STRICT, **({"dryRun": "All"} if dry_run else {})}
        path = kind.value.path(body["metadata"]["namespace"])
        return await self._call("POST", path, body, parameters=parameters)

    async def apply(self, kind: Kind, body: Object, subresource: str = "") -> Object:
        """Make the fields in the body what they are there, whoever wrote them before."""
        metadata = body["metadata"]
        path = f"{kind.value.path(metadata['namespace'])}/{metadata['name']}{subresource}"
        parameters = {**_OURS, **_STRICT, "force": "true"}
        return await self._call("PATCH", path, body, parameters=parameters, content=_APPLY)

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Change the fields in the patch; with metadata.uid only of that very object."""
        path = f"{kind.value.path(namespace)}/{name}"
        return await self._call("PATCH", path, patch, parameters=_OURS, content=_MERGE)

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str, *, at_once: bool = False
    ) -> None:
        """Delete that very object; `at_once`: without waiting for its node."""
        options: Object = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if at_once:
            options["gracePeriodSeconds"] = 0
        await self._call("DELETE", f"{kind.value.path(namespace)}/{name}", options)

    async def list(
        self,
        kind: Kind,
        namespace: str | None,
        selector: str = "",
        *,
        metadata_only: bool = False,
    ) -> AsyncIterator[Object]:
        """All objects of a kind, in chunks."""
        accept = _METADATA_ONLY if metadata_only else _JSON
        parameters = {"limit": str(_CHUNK)}
        if selector:
            parameters["labelSelector"] = selector
        path = kind.value.path(namespace)
        while True:
            answer = await self._call("GET", path, parameters=parameters, accept=accept)
            for item in answer.get("items") or []:
                yield item
            following = answer.get("metadata", {}).get("continue")
            if not following:
                return
            parameters["continue"] = following

    async def _call(
        self,
        verb: str,
        path: str,
        body: Object | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        content: str = _JSON,
        accept: str = _JSON,
    ) -> Object:
        if self._session is None:
            message = "the client is not open; use it as an async context manager"
            raise Unavailable(message)
        headers = {"Accept": accept, "Content-Type": content, **self._identity()}
        data = None if body is None else json.dumps(body).encode()
        url = self._credentials.server + path
        try:
            async with self._session.request(
                verb, url, params=parameters, data=data, headers=headers
            ) as response:
                metrics.API_REQUESTS.labels(verb, str(response.status)).inc()
                return answers.read(await response.read(), response.status, f"{verb} {path}")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            metrics.API_REQUESTS.labels(verb, "none").inc()
            message = f"{verb} {path}: no answer ({type(error).__name__}: {error})"
            raise Unavailable(message) from error

    def _identity(self) -> dict[str, str]:
        now = time.monotonic()
        if now - self._token_read_at >= _TOKEN_LIFE_SECONDS:
            self._token, self._token_read_at = self._credentials.read_token(), now
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}
