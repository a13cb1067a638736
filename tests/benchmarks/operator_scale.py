"""Many jobs at once: what the operator adds to what Kubernetes itself needs for their objects.

    .venv/bin/python tests/benchmarks/operator_scale.py [--quick] [--jobs 1000 5000]

A real API server, controller manager and scheduler (1,000 requests a second and 20 objects at a
time for each controller), nodes that are not there, a fake kubelet that makes pods Ready at once.
Each job has 2 shards, 2 replicas and a coordinator. The baseline is a plain asyncio script that
creates the same objects, on a control plane of its own in the same run. Needs root, as the test
cluster does, and that no other test cluster runs.

Running: all pods are Ready. Complete: every coordinator has ended, the outcomes are written and
the other pods are gone. Collected: every job is deleted after its time, and no pod is left.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import fake_nodes, operator_process
from builders.api_server import APPLY, METADATA, METADATA_LIST, ApiServer
from builders.fake_nodes import FakeNodes
from builders.report import Bar, print_report
from cluster import prerequisites
from cluster.bare import ControlPlane
from cluster.control_plane import Limits
from disttrain.job import crd
from disttrain.job.parsing import parse_job
from disttrain_operator import keys
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.children import children
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Context, Scale
from disttrain_operator.manifests.keys import secret
from disttrain_operator.observed.watched import CHILDREN

LIMITS = Limits(requests_per_second=1000, concurrent_syncs=20)
NODES = 20
PODS = 5
CLAIM = "checkpoints"
SPACE = "jobs"
AT_ONCE = 32
REQUESTS = "disttrain_operator_api_requests_total"
WATCH = "verb=WATCH"
LOOKS = "disttrain_operator_reconcile_seconds_count"
STATUS_SECONDS = 10
QUIET_SECONDS = 12
HOLDER = {"coordinator": "disttrain-coordinator"}


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    sizes: tuple[int, ...]
    single_jobs: int
    statuses: int
    """Rounds of statuses, one every ten seconds, of the first size."""
    idle_seconds: float
    wait_seconds: float


FULL = Plan((1000, 5000), single_jobs=30, statuses=6, idle_seconds=60, wait_seconds=3600)
QUICK = Plan((30,), single_jobs=5, statuses=1, idle_seconds=5, wait_seconds=120)


class Operator:
    """The operator's process, and what it used."""

    def __init__(self, process: psutil.Process, port: int) -> None:
        self._process = process
        self._port = port

    def cpu_seconds(self) -> float:
        """Of the process until now."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def peak_mb(self) -> float:
        """The most memory it had until now."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    def requests(self) -> float:
        """Requests to the API server until now, but for watches: those do not depend on jobs."""
        return sum(number for verb, number in self.requests_by_verb().items() if WATCH not in verb)

    def requests_by_verb(self) -> dict[str, float]:
        """The same by verb and code."""
        found = {}
        for line in self._get("/metrics").splitlines():
            if line.startswith(REQUESTS):
                labels, value = line.removeprefix(REQUESTS).rsplit(" ", 1)
                found[labels.replace('"', "")] = float(value)
        return found

    def looks(self) -> float:
        """How often it looked at a job until now."""
        lines = self._get("/metrics").splitlines()
        return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(LOOKS))

    def is_ready(self) -> bool:
        """Whether it looks after jobs."""
        try:
            return bool(self._get("/readyz"))
        except OSError:
            return False

    def _get(self, path: str) -> str:
        url = f"http://127.0.0.1:{self._port}{path}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read().decode())


def main() -> None:
    """Measure every size and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few jobs: for function only")
    parser.add_argument("--jobs", type=int, nargs="+", help="other sizes")
    asked = parser.parse_args()
    # Ended early, it must still stop the control plane.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    reason = prerequisites.reason_against()
    if reason is not None:
        print_report("operator_scale", {"skipped": reason}, [])
        return
    plan = QUICK if asked.quick else FULL
    sizes = tuple(asked.jobs or plan.sizes)
    figures: dict[str, Any] = {"limits": {"requests_per_second": 1000, "concurrent_syncs": 20}}
    for place, size in enumerate(sizes):
        figures[f"{size} jobs"] = measure(plan, size, first=place == 0)
    print_report("operator_scale", figures, list(bars(figures, sizes)))


def bars(figures: dict[str, Any], sizes: Iterable[int]) -> Iterable[Bar]:
    """The bounds of each size."""
    for size in sizes:
        found = figures[f"{size} jobs"]
        for name, key, bound in (
            ("seconds to Running against the baseline", "running_ratio", 1.3),
            ("CPU milliseconds per job life", "cpu_ms_per_job", 100),
            ("API requests per job life", "requests_per_job", 25),
            ("peak memory in MB", "peak_mb", 300),
            ("share of a core with finished jobs", "idle_share", 0.01),
            ("p99 seconds until a single job has its objects", "single_p99_seconds", 1),
        ):
            if key in found:
                yield Bar(f"{size} jobs: {name}", found[key], bound, at_least=False)


def measure(plan: Plan, size: int, *, first: bool) -> dict[str, Any]:
    """Baseline and operator at one size."""
    say(f"{size} jobs: baseline")
    with ControlPlane(LIMITS) as plane:
        found = asyncio.run(baseline(plan, plane, size))
    say(f"{size} jobs: operator")
    with ControlPlane(LIMITS) as plane:
        found |= asyncio.run(operator(plan, plane, size, first=first))
    return found | {"running_ratio": found["running_seconds"] / found["baseline_running_seconds"]}


async def baseline(plan: Plan, plane: ControlPlane, size: int) -> dict[str, Any]:
    """All objects by a script, as fast as it can."""
    async with prepared(plane) as (api, nodes):
        bodies = [child for number in range(size) for child in plain_children(f"j{number}")]
        began = time.monotonic()
        await together(bodies, lambda body: api.post(path_of(body), body))
        created = time.monotonic() - began
        running = await wait(nodes, lambda told: told["ready"] >= size * PODS, plan) - began
        cpu = plane.cpu_seconds()
    return {
        "baseline_created_seconds": created,
        "baseline_running_seconds": running,
        "baseline_control_plane_cpu_seconds": cpu,
        "baseline_writes": writes(plane),
    }


async def operator(plan: Plan, plane: ControlPlane, size: int, *, first: bool) -> dict[str, Any]:
    """The life of many jobs."""
    async with prepared(plane) as (api, nodes):
        with ExitStack() as stack:
            own = start_operator(stack, plane)
            await until(own.is_ready, 60)
            found = told(await singles(api, nodes, plan)) if first else {}
            before, looks = (own.cpu_seconds(), own.requests()), own.looks()
            found |= told(await begin(api, nodes, plan, size))
            found["running_writes"] = writes(plane)
            found["running_control_plane_cpu_seconds"] = plane.cpu_seconds()
            found["running_cpu_ms_per_job"] = 1000 * (own.cpu_seconds() - before[0]) / size
            apart = told(await statuses(api, own, plan, size)) if first else {}
            found |= told(await finish(api, nodes, plan, size))
            apart |= {"idle_cpu_seconds": await busy(own, plan.idle_seconds)}
            found |= told(await collect(api, nodes, plan, size))
            used = own.cpu_seconds() - before[0]
            used -= apart["idle_cpu_seconds"] + apart.get("status_cpu_seconds", 0)
            found |= apart
            found["idle_share"] = apart["idle_cpu_seconds"] / plan.idle_seconds
            found["cpu_ms_per_job"] = 1000 * used / size
            found["requests_per_job"] = (own.requests() - before[1]) / size
            found["looks_per_job"] = (own.looks() - looks) / size
            found["requests_by_verb"] = own.requests_by_verb()
            found["peak_mb"] = own.peak_mb()
            found["control_plane_cpu_seconds"] = plane.cpu_seconds()
    return found


async def singles(api: ApiServer, nodes: FakeNodes, plan: Plan) -> dict[str, Any]:
    """Seconds from one job's creation until all of its objects are there, on an idle system."""
    taken = []
    for number in range(plan.single_jobs):
        async with asyncio.TaskGroup() as group:
            seen = Seen()
            watches = [group.create_task(seen.watch(api, kind)) for kind in (*CHILDREN, Kind.Pod)]
            await seen.are_open(len(watches))
            began = time.monotonic()
            await api.post(jobs_path(), job(f"single{number}"))
            taken.append(await seen.all(len(watches) - 2 + PODS) - began)
            for each in watches:
                each.cancel()
        await api.delete(f"{jobs_path()}/single{number}")
        await wait(nodes, lambda told: told["pods"] == 0, plan)
    taken.sort()
    return {"single_p50_seconds": statistics.median(taken), "single_p99_seconds": taken[-1]}


class Seen:
    """Objects of one job as watches tell of them."""

    def __init__(self) -> None:
        self._open = asyncio.Semaphore(0)
        self._seen = asyncio.Semaphore(0)
        self._last = 0.0

    async def watch(self, api: ApiServer, kind: Kind) -> None:
        path = kind.value.path(SPACE) + "?labelSelector=disttrain.dev/job-uid"
        listed = await api.get(f"{path}&limit=1", accept=METADATA_LIST)
        self._open.release()
        version = listed["metadata"]["resourceVersion"]
        async for event in api.watch(path, version, accept=METADATA):
            if event["type"] == "ADDED":
                self._last = time.monotonic()
                self._seen.release()

    async def are_open(self, number: int) -> None:
        for _ in range(number):
            await self._open.acquire()

    async def all(self, number: int) -> float:
        """When the last of so many objects was told of."""
        async with asyncio.timeout(60):
            for _ in range(number):
                await self._seen.acquire()
        return self._last


async def begin(api: ApiServer, nodes: FakeNodes, plan: Plan, size: int) -> dict[str, Any]:
    """Create all jobs at once and wait until they run."""
    began = time.monotonic()
    await together(range(size), lambda number: api.post(jobs_path(), job(f"j{number}")))
    created = time.monotonic() - began
    running = await wait(nodes, lambda told: told["ready"] >= size * PODS, plan) - began
    await all_jobs(api, plan, size, lambda each: each.get("phase") == "Running")
    return {"jobs_created_seconds": created, "running_seconds": running}


def writes(plane: ControlPlane) -> dict[str, int]:
    """What everybody wrote to the API server until now, by resource, most first."""
    found: Counter[str] = Counter()
    for line in plane.kubectl.run("get", "--raw", "/metrics").splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if labels["verb"] in {"POST", "PUT", "PATCH", "APPLY", "DELETE"}:
                what = "/".join(filter(None, (labels["resource"], labels["subresource"])))
                found[f"{labels['verb']} {what}"] += int(float(line.rsplit(" ", 1)[1]))
    return dict(found.most_common(30))


async def statuses(api: ApiServer, own: Operator, plan: Plan, size: int) -> dict[str, Any]:
    """Every job's coordinator writes its status every ten seconds."""
    before, requests = own.cpu_seconds(), own.requests()
    began = time.monotonic()
    for turn in range(plan.statuses):
        await together(range(size), partial(tell, api, turn))
        await asyncio.sleep(max(0.0, began + (turn + 1) * STATUS_SECONDS - time.monotonic()))
    used, taken = own.cpu_seconds() - before, time.monotonic() - began
    return {
        "status_seconds": taken,
        "status_cpu_seconds": used,
        "status_cpu_share": used / taken,
        "status_requests_of_the_operator": own.requests() - requests,
    }


async def tell(api: ApiServer, turn: int, number: int) -> None:
    training = {"epoch": turn, "samples": 1000 * (turn + 1), "loss": 1 / (turn + 1)}
    header = {key: job(f"j{number}")[key] for key in ("apiVersion", "kind", "metadata")}
    path = f"{jobs_path()}/j{number}/status?fieldManager={HOLDER['coordinator']}&force=true"
    await api.patch(path, {**header, "status": {"training": training}}, APPLY)


async def finish(api: ApiServer, nodes: FakeNodes, plan: Plan, size: int) -> dict[str, Any]:
    """End every coordinator and wait until the jobs have ended."""
    began = time.monotonic()
    nodes.complete_all()
    done = {"done": size, "pods": size}
    await wait(nodes, lambda told: all(told[key] == value for key, value in done.items()), plan)
    await all_jobs(api, plan, size, lambda each: each.get("phase") == "Complete")
    return {"complete_seconds": time.monotonic() - began}


async def collect(api: ApiServer, nodes: FakeNodes, plan: Plan, size: int) -> dict[str, Any]:
    """Let the jobs' time pass and wait until they are gone."""
    began = time.monotonic()
    patch = {"spec": {"ttlSecondsAfterFinished": 1}}
    await together(range(size), lambda number: api.patch(f"{jobs_path()}/j{number}", patch))
    await wait(nodes, lambda told: told["pods"] == 0, plan)
    await all_jobs(api, plan, 0, lambda _: True)
    return {"collected_seconds": time.monotonic() - began}


async def busy(own: Operator, seconds: float) -> float:
    """CPU seconds that the operator uses while nothing happens."""
    requests = -1.0
    while requests < own.requests():
        # Numbers of pods are written ten seconds after the end.
        requests = own.requests()
        await asyncio.sleep(QUIET_SECONDS)
    before = own.cpu_seconds()
    await asyncio.sleep(seconds)
    return own.cpu_seconds() - before


@asynccontextmanager
async def prepared(plane: ControlPlane) -> AsyncIterator[tuple[ApiServer, FakeNodes]]:
    """A namespace with a bound claim, the CRD and nodes."""
    plane.kubectl.apply(crd.definition())
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "kubelet.log"
        with fake_nodes.running(plane.kubeconfig, NODES, log) as nodes:
            async with ApiServer(plane.kubeconfig, AT_ONCE) as api:
                await until(partial(serves_jobs, api), 60)
                await make_space(api)
                await warm_up(api, nodes)
                yield api, nodes


async def serves_jobs(api: ApiServer) -> bool:
    try:
        await api.get(jobs_path())
    except RuntimeError:
        return False
    return True


async def make_space(api: ApiServer) -> None:
    named = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    await api.post("/api/v1/namespaces", named)
    claim = {"namespace": SPACE, "name": CLAIM}
    shared: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    size = {"storage": "1Gi"}
    volume = {**shared, "capacity": size, "hostPath": {"path": "/nowhere"}, "claimRef": claim}
    header = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLAIM}}
    await api.post("/api/v1/persistentvolumes", {**header, "spec": volume})
    header = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim}
    spec = {**shared, "resources": {"requests": size}, "volumeName": CLAIM}
    path = Kind.PersistentVolumeClaim.value.path(SPACE)
    await api.post(path, {**header, "spec": spec})

    async def is_bound() -> bool:
        found = await api.get(f"{path}/{CLAIM}")
        return bool(found["status"].get("phase") == "Bound")

    await until(is_bound, 60)


async def warm_up(api: ApiServer, nodes: FakeNodes) -> None:
    """Let the control plane meet each kind once: its first requests take seconds."""
    bodies = plain_children("warm")
    await together(bodies, lambda body: api.post(path_of(body), body))
    await asyncio.to_thread(nodes.wait, lambda told: told["ready"] == PODS, 120)
    for body in bodies:
        options = {"propagationPolicy": "Background"}
        await api.delete(f"{path_of(body)}/{body['metadata']['name']}", options)
    await asyncio.to_thread(nodes.wait, lambda told: told["pods"] == 0, 120)


def start_operator(stack: ExitStack, plane: ControlPlane) -> Operator:
    """As it is shipped: for all namespaces."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    log = Path(os.environ.get("DISTTRAIN_OPERATOR_LOG", folder / "operator.log"))
    variables = {"DISTTRAIN_NAMESPACES": "", "DISTTRAIN_METRICS_PORT": str(port)}
    running = operator_process.running(plane.kubectl, log, **variables)
    process = stack.enter_context(running).process
    if process is None:
        raise RuntimeError(log.read_text())
    return Operator(psutil.Process(process.pid), port)


def job(name: str) -> dict[str, Any]:
    """A job of five pods."""
    spec = {
        "task": {"entrypoint": "digits:Digits"},
        "strategy": {"downpour": {"optimizer": {"sgd": {"learningRate": 0.1}}}},
        "batchSize": 8,
        "stop": {"epochs": 1},
        "checkpoint": {"volume": {"claimName": CLAIM}},
        "parameterServer": {"shards": 2},
        "replicas": {"count": 2},
    }
    header = {"apiVersion": Kind.DistTrainJob.value.api_version, "kind": Kind.DistTrainJob.name}
    return {**header, "metadata": {"name": name, "namespace": SPACE}, "spec": spec}


def plain_children(name: str) -> list[dict[str, Any]]:
    """What the operator makes for a job, without an owner."""
    parsed = parse_job(json.dumps(job(name)))
    context = Context(name, SPACE, f"uid-{name}", parsed, ManifestConfig())
    made = [
        child.body for child in children(context, Scale(shards=2, replicas=2, coordinator=True))
    ]
    bodies = [secret(context, keys.new_pairs()), *made]
    for body in bodies:
        del body["metadata"]["ownerReferences"]
    return bodies


def path_of(body: dict[str, Any]) -> str:
    return Kind[body["kind"]].value.path(SPACE)


def jobs_path() -> str:
    return Kind.DistTrainJob.value.path(SPACE)


async def together(values: Iterable[Any], work: Callable[[Any], Awaitable[Any]]) -> None:
    """Do something for each value, many at once."""
    rest = iter(values)

    async def one_after_the_other() -> None:
        for value in rest:
            await work(value)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(one_after_the_other())


async def all_jobs(
    api: ApiServer, plan: Plan, size: int, wanted: Callable[[dict[str, Any]], bool]
) -> None:
    """Wait until there are so many jobs, all with a wanted status."""

    async def are_there() -> bool:
        items = (await api.get(jobs_path()))["items"]
        return len(items) == size and all(wanted(each.get("status", {})) for each in items)

    await until(are_there, plan.wait_seconds, every=max(0.5, size / 500))


async def wait(nodes: FakeNodes, reached: Callable[[dict[str, Any]], bool], plan: Plan) -> float:
    return await asyncio.to_thread(nodes.wait, reached, plan.wait_seconds)


async def until(
    holds: Callable[[], bool | Awaitable[bool]], limit: float, every: float = 0.2
) -> None:
    """Ask until it holds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        answer = holds()
        if answer if isinstance(answer, bool) else await answer:
            return
        await asyncio.sleep(every)
    message = f"not in {limit} s"
    raise TimeoutError(message)


def told(figures: dict[str, Any]) -> dict[str, Any]:
    """The same figures, for who waits."""
    say(" ".join(f"{name}={value:.3g}" for name, value in figures.items()))
    return figures


def say(what: str) -> None:
    sys.stderr.write(f"{what}\n")


if __name__ == "__main__":
    main()
