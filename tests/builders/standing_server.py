"""An API server whose objects nobody changes: lists in chunks, watches that tell nothing.

    with standing_server.serving(jobs) as server: ...

For what an operator keeps of very many objects. It decides nothing, and stands in for the real
one only where the real one would need hours to make the objects.
"""

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from builders.standing_jobs import TOLD, StandingJobs
from disttrain_operator.kinds import Kind
from disttrain_operator.signing import master

_VERSION = "1000000"
_JOBS_IN_A_CHUNK = 100
_SECRETS = Kind.Secret.value.plural
START_SECONDS = 30


@dataclass(slots=True)
class StandingServer:
    """What it serves, and what it was asked to change."""

    jobs: StandingJobs
    url: str = ""
    changes: list[str] = field(default_factory=list)
    """Requests that would change something of a job: there should be none."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST" and request.path.endswith(f"/{_SECRETS}"):
            # Each job has its own; the operator may not read it, and asks by making it.
            exists = {"kind": "Status", "reason": "AlreadyExists", "message": "it is there"}
            return web.json_response(exists, status=409)
        if request.method != "GET":
            # A Lease is the operator's own hold on the cluster.
            if f"/{Kind.Lease.value.plural}" not in request.path:
                self.changes.append(f"{request.method} {request.path}")
            return web.json_response({"message": "nothing changes here"}, status=404)
        kind = next((each for each in Kind if each.value.path(None) == request.path), None)
        if kind is None and f"/{_SECRETS}/" in request.path:
            return _secret()
        if kind is None:
            return _discovered(request.path)
        if "watch" in request.query:
            return await _silence(request)
        return self._chunk(kind, int(request.query.get("continue", "0")))

    def _chunk(self, kind: Kind, begin: int) -> web.Response:
        end = begin + _JOBS_IN_A_CHUNK
        items = ",".join(self.jobs.some(kind, begin, end)) if kind in TOLD else ""
        metadata = {"resourceVersion": _VERSION}
        if end < self.jobs.number:
            metadata["continue"] = str(end)
        text = f'{{"kind":"List","metadata":{json.dumps(metadata)},"items":[{items}]}}'
        return web.Response(text=text, content_type="application/json")


async def _silence(request: web.Request) -> web.StreamResponse:
    """A watch that ends in its time."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await asyncio.sleep(float(request.query.get("timeoutSeconds", "300")))
    return response


def _secret() -> web.Response:
    """The operator's own, or that of any job, which it only looks for."""
    body = {"kind": "Secret", "data": {master.KEY: base64.b64encode(bytes(32)).decode()}}
    return web.json_response(body)


def _discovered(path: str) -> web.Response:
    """What there is to be served, for who asks before anything else."""
    group, _, version = Kind.DistTrainJob.value.api_version.partition("/")
    served = {"groupVersion": f"{group}/{version}", "version": version}
    resource = {
        "name": Kind.DistTrainJob.value.plural,
        "kind": Kind.DistTrainJob.name,
        "singularName": "",
        "namespaced": True,
        "verbs": ["get", "list", "watch", "patch"],
    }
    answers: dict[str, dict[str, Any]] = {
        "/api": {"versions": []},
        "/apis": {"groups": [{"name": group, "versions": [served], "preferredVersion": served}]},
        f"/apis/{group}/{version}": {"resources": [resource]},
    }
    return web.json_response(answers.get(path, {}), status=200 if path in answers else 404)


@contextmanager
def serving(jobs: StandingJobs) -> Iterator[StandingServer]:
    """A server in a thread of its own, as long as the context lasts."""
    server, loop = StandingServer(jobs), asyncio.new_event_loop()
    ready, ended = threading.Event(), asyncio.Event()

    async def serve() -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", server.answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await ended.wait()
        await runner.cleanup()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as everything:
            everything.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(START_SECONDS)
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(START_SECONDS)


def kubeconfig(folder: Path, url: str) -> Path:
    """How to reach it, in a file."""
    content = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "nobody"}}],
        "clusters": [{"name": "it", "cluster": {"server": url}}],
        "users": [{"name": "nobody", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path
