"""The operator's door to the API, against a server that says what it is told to."""

import asyncio
import json
import math
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from disttrain_operator.cluster import client as client_module
from disttrain_operator.cluster.answers import Event
from disttrain_operator.cluster.client import Client, Query
from disttrain_operator.cluster.credentials import Credentials
from disttrain_operator.errors import Conflict, Gone, Unavailable
from disttrain_operator.kinds import Kind

QUERY = Query(kind=Kind.Service, namespace="here", labels="a=b", metadata_only=True)
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def a_client(server: str) -> Client:
    return Client(Credentials(server, None), random.Random(0))


def asked(answer: Answer, question: Callable[[Client], Awaitable[Any]]) -> Any:
    """Ask a question of a server that answers so."""

    async def scenario() -> Any:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        try:
            async with a_client(f"http://{host}:{port}") as client:
                async with asyncio.timeout(20):
                    return await question(client)
        finally:
            await runner.cleanup()

    return asyncio.run(scenario())


def line(kind: str, version: int) -> bytes:
    body = {"metadata": {"name": "x" * 3000, "resourceVersion": str(version)}}
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def streaming(*pieces: bytes, broken: bool = False) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.query["watch"] == "1"
        assert request.query["resourceVersion"] == "5"
        assert request.query["labelSelector"] == "a=b"
        assert request.query["allowWatchBookmarks"] == "true"
        assert "PartialObjectMetadata" in request.headers["Accept"]
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if broken and request.transport is not None:
            request.transport.abort()
        return response

    return answer


async def watch(client: Client) -> list[Event]:
    return [event async for event in client.watch(QUERY, "5")]


def test_a_watch_tells_events_until_the_server_ends_it() -> None:
    content = line("ADDED", 6) + line("MODIFIED", 7) + line("BOOKMARK", 9)
    pieces = [content[begin : begin + 1000] for begin in range(0, len(content), 1000)]

    found = asked(streaming(*pieces), watch)

    assert [event.version for event in found] == ["6", "7", "9"]


def test_a_watch_of_what_is_forgotten_is_gone() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        del request
        return web.json_response({"message": "too old resource version"}, status=410)

    with pytest.raises(Gone, match="too old"):
        asked(answer, watch)
    error = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
    with pytest.raises(Gone, match="too old"):
        asked(streaming(json.dumps(error).encode() + b"\n"), watch)


def test_a_watch_of_a_version_that_is_still_to_come_is_gone_too() -> None:
    """As after a restore of etcd: waiting for it would be for ever."""
    words = "Timeout: Too large resource version: 900, current: 12"

    async def answer(request: web.Request) -> web.StreamResponse:
        del request
        return web.json_response({"message": words}, status=504)

    with pytest.raises(Gone, match="Too large"):
        asked(answer, watch)
    error = {"type": "ERROR", "object": {"code": 504, "message": words}}
    with pytest.raises(Gone, match="Too large"):
        asked(streaming(json.dumps(error).encode() + b"\n"), watch)


def test_a_watch_whose_connection_breaks_is_an_error() -> None:
    with pytest.raises(Unavailable, match="WATCH"):
        asked(streaming(line("ADDED", 6)[:-100], broken=True), watch)


def test_a_list_comes_in_chunks_and_says_from_where_to_watch() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        more = request.query.get("continue") is None
        metadata = {"resourceVersion": "12", **({"continue": "on"} if more else {})}
        items = [{"metadata": {"name": "first" if more else "second"}}]
        return web.json_response({"metadata": metadata, "items": items})

    async def pages(client: Client) -> list[Any]:
        return [page async for page in client.pages(QUERY)]

    found = asked(answer, pages)

    assert [item["metadata"]["name"] for page in found for item in page.items] == [
        "first",
        "second",
    ]
    assert {page.version for page in found} == {"12"}


def test_an_object_is_made_strictly_and_a_taken_name_is_a_conflict() -> None:
    body = {"metadata": {"namespace": "here", "name": "x"}, "data": {}}

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.method == "POST"
        assert request.path == "/api/v1/namespaces/here/services"
        assert request.query["fieldValidation"] == "Strict"
        assert await request.json() == body
        return web.json_response({"message": "it is there"}, status=409)

    with pytest.raises(Conflict, match="it is there"):
        asked(answer, lambda client: client.create(Kind.Service, body))


def test_an_object_is_deleted_only_if_it_is_the_one_and_as_it_was_seen() -> None:
    told: list[Any] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        assert (request.method, request.path) == ("DELETE", "/apis/batch/v1/namespaces/here/jobs/x")
        told.append((await request.json())["preconditions"])
        return web.json_response({"message": "it has changed"}, status=409)

    with pytest.raises(Conflict, match="it has changed"):
        asked(answer, lambda client: client.delete(Kind.Job, "here", "x", "uid"))
    with pytest.raises(Conflict, match="it has changed"):
        asked(answer, lambda client: client.delete(Kind.Job, "here", "x", "uid", version=7))
    assert told == [{"uid": "uid"}, {"uid": "uid", "resourceVersion": "7"}]


def test_a_server_that_is_not_there_is_unavailable() -> None:
    async def scenario() -> None:
        async with a_client("http://127.0.0.1:9") as client:
            await client.get(Kind.Service, "here", "x")

    with pytest.raises(Unavailable, match="no answer"):
        asyncio.run(scenario())


async def never_answering(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError(request)


def test_an_api_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    shorter = aiohttp.ClientTimeout(total=(client_module._USUAL.total or math.inf) / 100)
    monkeypatch.setattr(client_module, "_USUAL", shorter)

    with pytest.raises(Unavailable, match="no answer"):
        asked(never_answering, lambda client: client.get(Kind.Service, "here", "x"))


def test_a_watch_that_should_have_ended_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = client_module._WATCH_SECONDS[1]
    silence = client_module._STREAM.sock_read or math.inf
    # A watch in which nothing happens is silent for all the time it was asked to last.
    assert silence > longest
    shorter = aiohttp.ClientTimeout(total=None, sock_read=silence / 1000)
    monkeypatch.setattr(client_module, "_STREAM", shorter)

    with pytest.raises(Unavailable, match="no answer"):
        asked(never_answering, watch)


def test_a_token_that_was_replaced_is_read_within_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, now = tmp_path / "token", 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    credentials = Credentials("http://127.0.0.1:9", None, token_file=file)

    async def scenario() -> list[str]:
        nonlocal now
        found = []
        async with Client(credentials, random.Random(0)) as client:
            for text, seconds in (("first\n", 0), ("second\n", 59), ("second\n", 2)):
                now += seconds
                file.write_text(text)
                found.append(client._identity()["Authorization"])
        return found

    assert asyncio.run(scenario()) == ["Bearer first", "Bearer first", "Bearer second"]


def test_a_token_that_cannot_be_read_now_is_no_end(tmp_path: Path) -> None:
    file = tmp_path / "token"
    credentials = Credentials("http://127.0.0.1:9", None, token_file=file)

    async def scenario() -> None:
        async with Client(credentials, random.Random(0)) as client:
            await client.get(Kind.Service, "here", "x")

    with pytest.raises(Unavailable, match=f"GET .* no answer .*{file}"):
        asyncio.run(scenario())
