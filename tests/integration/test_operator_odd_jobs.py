"""Jobs that users filled with what no parser takes, from a server that stores them."""

import asyncio
import json
import random
from typing import Any

import pytest
from aiohttp import web

from disttrain_operator import handlers
from disttrain_operator.cluster.client import Client, Query
from disttrain_operator.cluster.credentials import Credentials
from disttrain_operator.kinds import Kind

COLLECTION = "/apis/disttrain.dev/v1alpha1/disttrainjobs"
DEEP = "[" * 5_000 + "]" * 5_000
WIDE = json.dumps([[1]] * 300_000)


def a_job(name: str, arguments: str) -> str:
    metadata = json.dumps({"namespace": "here", "name": name, "uid": name, "resourceVersion": "3"})
    return f'{{"metadata":{metadata},"spec":{{"task":{{"arguments":{{"a":{arguments}}}}}}}}}'


def a_resource(plural: str, kind: str, *, namespaced: bool) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "patch"]
    names = {"name": plural, "singularName": kind.lower(), "kind": kind}
    return {**names, "namespaced": namespaced, "verbs": verbs}


class Server:
    """An API server that holds jobs by the texts of their arguments."""

    def __init__(self, *arguments: str) -> None:
        self.jobs = [a_job(f"job-{place}", text) for place, text in enumerate(arguments)]
        self.later: list[str] = []
        """Jobs that a watch tells."""
        self.limits: list[int] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path != COLLECTION:
            return self._about_the_api(request)
        if request.query.get("watch"):
            return await self._watch(request)
        limit, begin = int(request.query["limit"]), int(request.query.get("continue", 0))
        self.limits.append(limit)
        following = begin + limit
        metadata = {"resourceVersion": "5"}
        if following < len(self.jobs):
            metadata["continue"] = str(following)
        items = ",".join(self.jobs[begin:following])
        text = f'{{"metadata":{json.dumps(metadata)},"items":[{items}]}}'
        return web.Response(text=text, content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for job in self.later:
            await response.write(f'{{"type":"ADDED","object":{job}}}\n'.encode())
        await asyncio.sleep(300)
        return response

    @staticmethod
    def _about_the_api(request: web.Request) -> web.StreamResponse:
        version = {"version": "v1alpha1"}
        group = {"name": "disttrain.dev", "versions": [version], "preferredVersion": version}
        jobs = a_resource("disttrainjobs", "DistTrainJob", namespaced=True)
        answers: dict[str, Any] = {
            "/apis": {"groups": [group]},
            "/api": {"versions": ["v1"]},
            "/api/v1": {"resources": [a_resource("namespaces", "Namespace", namespaced=False)]},
            "/apis/disttrain.dev/v1alpha1": {"resources": [jobs]},
        }
        return web.json_response(answers.get(request.path, {}))


async def serving(server: Server) -> tuple[web.AppRunner, Credentials]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    return runner, Credentials(f"http://{host}:{port}", None)


def listed(server: Server) -> list[dict[str, Any]]:
    async def scenario() -> list[dict[str, Any]]:
        runner, credentials = await serving(server)
        try:
            async with Client(credentials, random.Random(0)) as client, asyncio.timeout(120):
                pages = client.pages(Query(kind=Kind.DistTrainJob))
                return [body async for page in pages for body in page.items]
        finally:
            await runner.cleanup()

    return asyncio.run(scenario())


def test_a_list_of_jobs_holds_one_that_is_too_deep_and_all_others() -> None:
    found = listed(Server('"good"', DEEP, '"good"'))
    assert [body["metadata"]["name"] for body in found] == ["job-0", "job-1", "job-2"]
    assert [isinstance(body["spec"], dict) for body in found] == [True, False, True]


def test_a_list_of_large_jobs_is_asked_for_in_smaller_pieces() -> None:
    server = Server(*[WIDE] * 6)
    found = listed(server)
    assert [body["metadata"]["name"] for body in found] == [f"job-{place}" for place in range(6)]
    assert not any(isinstance(body["spec"], dict) for body in found)
    assert server.limits[-1] <= 1, "a page of two is larger than what may be in memory"


@pytest.mark.parametrize("arguments", [DEEP, WIDE], ids=["deep", "wide"])
def test_the_watch_of_jobs_goes_on_after_one_that_no_parser_takes(arguments: str) -> None:
    server = Server('"good"', arguments, '"good"')
    server.later = [a_job("later-0", arguments), a_job("later-1", '"good"')]

    async def scenario() -> list[str]:
        runner, credentials = await serving(server)
        seen: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        def on_event(_: Kind, __: str | None, body: dict[str, Any]) -> None:
            seen.put_nowait(body)

        work = asyncio.create_task(handlers.run(credentials, (), on_event, asyncio.Event()))
        try:
            async with asyncio.timeout(120):
                return [(await seen.get())["metadata"]["name"] for _ in range(5)]
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await runner.cleanup()

    names = asyncio.run(scenario())
    assert sorted(names) == ["job-0", "job-1", "job-2", "later-0", "later-1"]
