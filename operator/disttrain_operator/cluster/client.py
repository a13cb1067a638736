"""Requests to the API server. The only module that makes any."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

import aiohttp

from disttrain.job.cluster_names import OPERATOR_FIELD_MANAGER
from disttrain_operator import json_text
from disttrain_operator.cluster import answers
from disttrain_operator.cluster.answers import Event, Lines
from disttrain_operator.cluster.credentials import Credentials
from disttrain_operator.errors import Unavailable
from disttrain_operator.json_text import Level
from disttrain_operator.kinds import Kind
from disttrain_operator.telemetry import metrics

Object = dict[str, Any]

JSON = "application/json"
WATCH = "WATCH"
"""The verb of a GET that does not end; told apart in metrics."""

_USUAL = aiohttp.ClientTimeout(total=20)
"""Seconds for one request. The API server answers within a second or is in trouble."""

_WATCH_SECONDS = (100, 200)
"""How long a watch is asked to last: not all of them end at once."""

_STREAM = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=230)
"""Of kinds of which nothing changes no bookmark comes either: only a watch that should have ended
has lost its connection."""

_GATHERED_SECONDS = 0.1
"""How long events of a watch may wait for others; nobody acts on one as soon."""

_BACKLOG_BYTES = 32 * 1024
"""Who has so much to read reads on: the API server ends watches that fall behind."""

_CONNECTIONS = 32
"""At once; more only wait inside the API server."""

_TOKEN_LIFE_SECONDS = 60.0
_CHUNK = 500
_METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_STRICT = {"fieldValidation": "Strict"}
_OURS = {"fieldManager": OPERATOR_FIELD_MANAGER}


_LARGEST_PAGE_BYTES = 2 * 2**20
"""Of a chunk of a list: what it holds takes up to 35 times as much memory once it is read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """Objects of one kind."""

    kind: Kind
    namespace: str | None = None
    """None: in all namespaces."""
    labels: str = ""
    """A label selector."""
    fields: str = ""
    """A field selector."""
    metadata_only: bool = False
    """Whether nothing but the metadata matters."""

    @property
    def path(self) -> str:
        return self.kind.value.path(self.namespace)

    @property
    def parameters(self) -> dict[str, str]:
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in selectors.items() if value}


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the API server."""

    verb: str
    path: str
    parameters: Mapping[str, str]
    accept: str = JSON
    content: str = JSON
    """Type of the body."""
    body: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


class _TooLarge(Exception):
    """A chunk of a list is larger than what may be in memory: ask for fewer objects."""


@dataclass(frozen=True, slots=True)
class Page:
    """A chunk of a list."""

    items: list[Object]
    version: str
    """Of the whole list: from there a watch tells what came after."""


class Client:
    """Use as an async context manager, within one event loop."""

    def __init__(self, credentials: Credentials, chance: random.Random) -> None:
        self._credentials = credentials
        self._chance = chance
        self._asking: aiohttp.ClientSession | None = None
        self._watching: aiohttp.ClientSession | None = None
        self._token: str | None = None
        self._token_read_at = -_TOKEN_LIFE_SECONDS

    async def __aenter__(self) -> Self:
        # A watch holds its connection: it must not take one from those that ask.
        self._asking, self._watching = self._session(_CONNECTIONS), self._session(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in (self._asking, self._watching):
            if session is not None:
                await session.close()

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        request = Request("GET", kind.value.path(namespace, name), {})
        return await self._call(request, _level(kind))

    async def create(self, kind: Kind, body: Object, *, dry_run: bool = False) -> Object:
        """Make an object; unknown fields are refused. Only its metadata are told."""
        parameters = {**_OURS, **_STRICT, **({"dryRun": "All"} if dry_run else {})}
        path = kind.value.path(body["metadata"]["namespace"])
        return await self._call(Request("POST", path, parameters, accept=_METADATA, body=body))

    async def review_token(self, token: str, audience: str) -> Object:
        """Ask whose a token is; the answer is a TokenReview."""
        spec = {"token": token, "audiences": [audience]}
        body = {**Kind.TokenReview.header, "spec": spec}
        path = Kind.TokenReview.value.path(None)
        return await self._call(Request("POST", path, {}, body=body))

    async def apply(self, kind: Kind, body: Object, subresource: str = "") -> Object:
        """Make the fields in the body what they are there, whoever wrote them before."""
        metadata = body["metadata"]
        path = kind.value.path(metadata["namespace"], metadata["name"]) + subresource
        parameters = {**_OURS, **_STRICT, "force": "true"}
        request = Request("PATCH", path, parameters, content=_APPLY, body=body)
        return await self._call(request, _level(kind))

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Change the fields in the patch; with metadata.uid only of that very object."""
        path = kind.value.path(namespace, name)
        request = Request("PATCH", path, _OURS, content=_MERGE, body=patch)
        return await self._call(request, _level(kind))

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        uid: str,
        *,
        at_once: bool = False,
        version: int | None = None,
    ) -> None:
        """Delete that very object, with a version only as it was then.

        `at_once`: without waiting for its node.
        """
        only = {"uid": uid} if version is None else {"uid": uid, "resourceVersion": str(version)}
        options: Object = {"preconditions": only, "propagationPolicy": "Background"}
        if at_once:
            options["gracePeriodSeconds"] = 0
        await self._call(Request("DELETE", kind.value.path(namespace, name), {}, body=options))

    async def pages(self, query: Query) -> AsyncIterator[Page]:
        """Everything that a query is about, in chunks of one moment and of bounded size."""
        accept = _METADATA_LIST if query.metadata_only else JSON
        chunk, following = _CHUNK, ""
        while True:
            parameters = {**query.parameters, "limit": str(chunk)}
            if following:
                parameters["continue"] = following
            request = Request("GET", query.path, parameters, accept)
            jobs_at = Level.LIST if query.kind is Kind.DistTrainJob else None
            try:
                # A single object is as large as the API server lets it be.
                largest = _LARGEST_PAGE_BYTES if chunk > 1 else None
                answer = await self._call(request, jobs_at, largest)
            except _TooLarge:
                chunk = max(1, chunk // 4)
                continue
            metadata = answer.get("metadata", {})
            yield Page(answer.get("items") or [], str(metadata.get("resourceVersion", "")))
            following = metadata.get("continue")
            if not following:
                return

    async def watch(self, query: Query, version: str) -> AsyncGenerator[Event, None]:
        """What happens after a version, until the API server ends the stream in its time.

        Raises Gone where a new list must come first, Unavailable when the connection breaks.
        """
        accept = _METADATA if query.metadata_only else JSON
        seconds = self._chance.randint(*_WATCH_SECONDS)
        parameters = {
            **query.parameters,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        request = Request(WATCH, query.path, parameters=parameters, accept=accept)
        async with self._send(request, _STREAM) as response:
            if response.status != HTTPStatus.OK:
                answers.read(await response.read(), response.status, str(request))
            lines = Lines()
            async for piece in response.content.iter_any():
                for line in lines.add(piece):
                    yield answers.event(line)
                if len(piece) < _BACKLOG_BYTES:
                    # Events that come one by one are read together then.
                    await asyncio.sleep(_GATHERED_SECONDS)

    async def _call(
        self, request: Request, jobs_at: Level | None = None, largest: int | None = None
    ) -> Object:
        """The object in the answer. Raises _TooLarge for one of more bytes, before it is read."""
        async with self._send(request, _USUAL) as response:
            pieces, num_bytes = [], 0
            async for piece in response.content.iter_any():
                pieces.append(piece)
                num_bytes += len(piece)
                if largest is not None and num_bytes > largest:
                    raise _TooLarge
            return answers.read(b"".join(pieces), response.status, str(request), jobs_at)

    def _session(self, connections: int) -> aiohttp.ClientSession:
        context = self._credentials.ssl_context()
        connector = aiohttp.TCPConnector(limit=connections, ssl=context, keepalive_timeout=60)
        # The API server sets no cookies, and looking for some at each request takes time.
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    @asynccontextmanager
    async def _send(
        self, request: Request, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; what breaks while its answer is read is translated too."""
        watches = request.verb == WATCH
        session = self._watching if watches else self._asking
        if session is None:
            message = "the client is not open; use it as an async context manager"
            raise Unavailable(message)
        url, code = self._credentials.server + request.path, "none"
        try:
            # The file of the token may be away as well, or not be readable.
            headers = {"Accept": request.accept, "Content-Type": request.content}
            headers |= self._identity()
            async with session.request(
                "GET" if watches else request.verb,
                url,
                params=request.parameters,
                data=None if request.body is None else json_text.write(request.body),
                headers=headers,
                timeout=limits,
            ) as response:
                code = str(response.status)
                metrics.API_REQUESTS.labels(request.verb, code).inc()
                try:
                    yield response
                finally:
                    cut_what_is_left(response)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            if code == "none":
                metrics.API_REQUESTS.labels(request.verb, code).inc()
            message = f"{request}: no answer ({type(error).__name__}: {error})"
            raise Unavailable(message) from error

    def _identity(self) -> dict[str, str]:
        now = time.monotonic()
        if now - self._token_read_at >= _TOKEN_LIFE_SECONDS:
            self._token, self._token_read_at = self._credentials.read_token(), now
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


def cut_what_is_left(response: aiohttp.ClientResponse) -> None:
    """Drop the connection of an answer that was not read to its end.

    TLS would wait for the server's farewell, beyond the end of the client.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _level(kind: Kind) -> Level | None:
    return Level.OBJECT if kind is Kind.DistTrainJob else None
