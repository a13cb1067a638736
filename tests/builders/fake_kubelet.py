"""Nodes that are not there: pods bound to them become Ready at once, and are gone when deleted.

    KUBECONFIG=... python -m builders.fake_kubelet NODES

Reads commands from standard input, a line each: `complete` ends every coordinator, now and from
now on. Writes a JSON line with the numbers of pods whenever they change, with the time of the
change on the machine's monotonic clock.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from builders.api_server import MERGE, ApiServer

COMPONENT = "app.kubernetes.io/component"
OUTCOME = '{"phase": "Complete", "reason": "EpochsDone", "message": "1 epoch", "samples": 1}'
ATTEMPTS = 120
RETRY_SECONDS = 0.5
TROUBLE = (aiohttp.ClientError, RuntimeError)
"""What the API server may give for a while, with thousands of pods."""
TELL_SECONDS = 0.05
CONDITIONS = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
NODES = "/api/v1/nodes"


class FakeKubelet:
    """All kubelets in one."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._pods: dict[str, dict[str, Any]] = {}
        self._ready: set[str] = set()
        self._done: set[str] = set()
        self._ended: set[str] = set()
        self._complete = False
        self._changed_at = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, num_nodes: int) -> None:
        await make_nodes(self._api, num_nodes)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._tell())
            group.create_task(self._read_commands())

    async def _watch(self) -> None:
        while True:
            with suppress(*TROUBLE):
                await self._follow("/api/v1/pods?fieldSelector=spec.nodeName!=")
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self, path: str) -> None:
        """List the pods, then take in what happens, until the watch ends."""
        listed = await self._api.get(path)
        there = {pod["metadata"]["uid"] for pod in listed["items"]}
        for pod in listed["items"]:
            self._take("LISTED", pod)
        for uid in set(self._pods) - there:
            self._forget(uid)
        async for event in self._api.watch(path, listed["metadata"]["resourceVersion"]):
            if event["type"] == "ERROR":
                return
            self._take(event["type"], event["object"])

    def _take(self, event: str, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        uid = metadata["uid"]
        if event == "DELETED":
            self._forget(uid)
        elif "deletionTimestamp" in metadata:
            if uid not in self._ended:
                self._ended.add(uid)
                self._do(self._remove(metadata))
        elif uid not in self._pods:
            slim = {"namespace": metadata["namespace"], "name": metadata["name"], "uid": uid}
            self._pods[uid] = slim | {"component": metadata["labels"].get(COMPONENT)}
            self._do(self._start(self._pods[uid]))

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        for uids in (self._ready, self._done, self._ended):
            uids.discard(uid)
        self._changed_at = time.monotonic()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, pod: dict[str, Any]) -> None:
        await self._patch(pod, _running(len(self._ready)))
        if pod["uid"] not in self._pods:
            return
        self._ready.add(pod["uid"])
        self._changed_at = time.monotonic()
        if self._complete:
            await self._finish(pod)

    async def _finish(self, pod: dict[str, Any]) -> None:
        if pod["component"] == "coordinator" and pod["uid"] not in self._done:
            self._done.add(pod["uid"])
            await self._patch(pod, _succeeded())
            self._changed_at = time.monotonic()

    async def _remove(self, metadata: dict[str, Any]) -> None:
        pod = self._pods.get(metadata["uid"])
        # A kubelet tells how its containers ended; the controller of Jobs waits for that.
        unfinished = pod is not None and pod["uid"] not in self._done
        if pod is not None and unfinished and pod["component"] == "coordinator":
            await self._patch(
                pod, {"phase": "Failed", "conditions": [_condition("Ready", "False")]}
            )
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        await _stubbornly(path, partial(self._delete, path, options))

    async def _delete(self, path: str, options: dict[str, Any]) -> None:
        code = await self._api.delete(path, options)
        if code not in {200, 202, 404, 409}:
            message = f"DELETE {path}: {code}"
            raise RuntimeError(message)

    async def _patch(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}/status"
        body = {"metadata": {"uid": pod["uid"]}, "status": status}
        await _stubbornly(path, partial(self._api.patch, path, body, MERGE))

    async def _tell(self) -> None:
        told = ""
        while True:
            numbers = {"pods": len(self._pods), "ready": len(self._ready), "done": len(self._done)}
            text = json.dumps(numbers)
            if text != told:
                told = text
                sys.stdout.write(json.dumps({**numbers, "at": self._changed_at}) + "\n")
                sys.stdout.flush()
            await asyncio.sleep(TELL_SECONDS)

    async def _read_commands(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async for line in reader:
            if line.strip() == b"complete":
                self._complete = True
                for pod in list(self._pods.values()):
                    self._do(self._finish(pod))


async def _stubbornly(path: str, ask: Callable[[], Awaitable[Any]]) -> None:
    """Ask until it is done, or there is no such object any more."""
    for _ in range(ATTEMPTS):
        try:
            await ask()
        except RuntimeError as error:
            if " 404 " in str(error) or " 409 " in str(error):
                return
        except aiohttp.ClientError:
            pass
        else:
            return
        await asyncio.sleep(RETRY_SECONDS)
    message = f"{path}: in vain"
    raise RuntimeError(message)


async def make_nodes(api: ApiServer, number: int) -> None:
    """Register nodes with room for everything."""
    capacity = {"cpu": "100000", "memory": "1000Ti", "pods": "100000"}
    for index in range(number):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _node(index)}}
        await api.post(NODES, body)
        conditions = [_condition("Ready", "True")]
        status = {"capacity": capacity, "allocatable": capacity, "conditions": conditions}
        await api.patch(f"{NODES}/{_node(index)}/status", {"status": status})
        # Admission makes each node not ready; nobody watches these to take that back.
        await api.patch(f"{NODES}/{_node(index)}", {"spec": {"taints": None}}, MERGE)


def _node(number: int) -> str:
    return f"fake-{number}"


def _condition(kind: str, status: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": _now()}


def _running(number: int) -> dict[str, Any]:
    return {
        "phase": "Running",
        "conditions": [_condition(kind, "True") for kind in CONDITIONS],
        "containerStatuses": [_container({"running": {"startedAt": _now()}})],
        "podIP": f"10.{100 + number // 65536}.{number // 256 % 256}.{number % 256}",
        "startTime": _now(),
    }


def _succeeded() -> dict[str, Any]:
    times = {"startedAt": _now(), "finishedAt": _now()}
    ended = {"exitCode": 0, "reason": "Completed", "message": OUTCOME, **times}
    return {
        "phase": "Succeeded",
        "conditions": [_condition("Ready", "False")],
        "containerStatuses": [_container({"terminated": ended})],
    }


def _container(state: dict[str, Any]) -> dict[str, Any]:
    runs = "running" in state
    named = {"name": "disttrain", "image": "none", "imageID": "none"}
    return {**named, "ready": runs, "started": runs, "restartCount": 0, "state": state}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _main() -> None:
    async with ApiServer(Path(os.environ["KUBECONFIG"])) as api:
        # The watch has a connection of its own in the same pool.
        await FakeKubelet(api).run(int(sys.argv[1]))


if __name__ == "__main__":
    asyncio.run(_main())
