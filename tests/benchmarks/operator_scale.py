"""Many jobs at once: what the operator adds to what Kubernetes itself needs for their objects.

    .venv/bin/python tests/benchmarks/operator_scale.py [--quick] [--jobs 1000 5000] [--large 0]

A real API server, controller manager and scheduler (1,000 requests a second and 20 objects at a
time for each controller), nodes that are not there, a fake kubelet that makes pods Ready at once.
Each job has 2 shards, 2 replicas and a coordinator. The baseline is a plain asyncio script that
creates the same objects, of 32 jobs at a time, each after what it names, on a control plane of its
own in the same run. Both have the rights that the chart gives the operator: of an administrator the
API server asks less. Needs root, as the test cluster does, and that no other test cluster runs.

Running: all pods are Ready. Complete: every coordinator has ended, the outcomes are written and
the other pods are gone. Collected: every job is deleted after its time, and no pod is left.
"""

import argparse
import asyncio
import json
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import (
    ended_jobs,
    fake_nodes,
    many_at_once,
    many_jobs,
    operator_rights,
    operator_usage,
    plane_usage,
)
from builders.api_server import APPLY, ApiServer
from builders.fake_nodes import FakeNodes
from builders.many_jobs import JOBS_PATH, PODS, SPACE
from builders.operator_usage import Meter, OperatorUsage
from builders.report import Bar, print_report
from builders.told_objects import ToldObjects
from cluster import prerequisites
from cluster.bare import ControlPlane
from cluster.control_plane import Limits
from disttrain.job import crd
from disttrain.job.status import Phase
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.watched import CHILDREN

LIMITS = Limits(requests_per_second=1000, concurrent_syncs=20)
NODES = 20
STATUS_SECONDS = 10
QUIET_SECONDS = 12
BEGIN_SECONDS = 120
"""For whatever must begin before anything is measured."""
HOLDER = {"coordinator": "disttrain-coordinator"}


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    sizes: tuple[int, ...]
    single_jobs: int
    large_replicas: int
    """Of one job that is larger than any that somebody needs; 0: there is none."""
    statuses: int
    """Rounds of statuses, one every ten seconds, of the first size."""
    idle_seconds: float
    wait_seconds: float


FULL = Plan(
    (1000, 5000),
    single_jobs=30,
    large_replicas=2000,
    statuses=6,
    idle_seconds=60,
    wait_seconds=3600,
)
QUICK = Plan((30,), single_jobs=5, large_replicas=100, statuses=1, idle_seconds=5, wait_seconds=120)


def main() -> None:
    """Measure every size and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few jobs: for function only")
    parser.add_argument("--jobs", type=int, nargs="+", help="other sizes")
    parser.add_argument("--large", type=int, help="other number of replicas of the one large job")
    asked = parser.parse_args()
    # Ended early, it must still stop the control plane.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    reason = prerequisites.reason_against()
    if reason is not None:
        print_report("operator_scale", {"skipped": reason}, [])
        return
    plan = QUICK if asked.quick else FULL
    if asked.large is not None:
        plan = replace(plan, large_replicas=asked.large)
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
            ("most seconds that ended jobs outlive their time", "ttl_late_seconds", 2),
        ):
            if key in found:
                yield Bar(f"{size} jobs: {name}", found[key], bound, at_least=False)


def measure(plan: Plan, size: int, *, first: bool) -> dict[str, Any]:
    """Baseline and operator at one size."""
    say(f"{size} jobs: baseline")
    with plane() as alone:
        found = asyncio.run(baseline(plan, alone, size))
    say(f"{json.dumps(found)}\n{size} jobs: operator")
    with plane() as used:
        found |= asyncio.run(operator(plan, used, size, first=first))
    found["running_ratio"] = found["running_seconds"] / found["baseline_running_seconds"]
    say(json.dumps({f"{size} jobs": found}))
    return found


@contextmanager
def plane() -> Iterator[ControlPlane]:
    """A control plane; of one that breaks, the ends of its logs are told."""
    with ControlPlane(LIMITS) as made:
        try:
            yield made
        except Exception:
            say(made.last_words())
            raise


async def baseline(plan: Plan, plane: ControlPlane, size: int) -> dict[str, Any]:
    """All objects by a script, as fast as it can."""
    async with prepared(plane) as (_, nodes):
        jobs = [many_jobs.plain_children(f"j{number}") for number in range(size)]
        rights = operator_rights.grant(plane.kubectl)
        async with ApiServer(rights.kubeconfig, many_at_once.AT_ONCE) as own:
            began, before = time.monotonic(), plane.cpu_seconds()
            await many_at_once.together(jobs, partial(create, own))
            created = time.monotonic() - began
        running = await wait(nodes, lambda told: told["ready"] >= size * PODS, plan) - began
        used = plane_usage.since(before, plane)
    return {
        "baseline_created_seconds": created,
        "baseline_running_seconds": running,
        "baseline_control_plane_cpu_seconds": used,
        "baseline_writes": plane_usage.writes(plane),
    }


async def operator(plan: Plan, plane: ControlPlane, size: int, *, first: bool) -> dict[str, Any]:
    """The life of many jobs."""
    async with prepared(plane) as (api, nodes):
        with operator_usage.measured(operator_rights.grant(plane.kubectl)) as own:
            await many_at_once.until(own.is_ready, BEGIN_SECONDS)
            found: dict[str, Any] = {}
            if first:
                found |= told(await singles(api, nodes, plan))
                if plan.large_replicas:
                    found |= told(await large(api, nodes, own, plan))
            meter, before = Meter(own), plane.cpu_seconds()
            found |= told(await begin(api, nodes, own, plan, size))
            found["running_writes"] = plane_usage.writes(plane)
            used = plane_usage.since(before, plane)
            found["running_control_plane_cpu_seconds"] = told(used)
            found["running_cpu_ms_per_job"] = told(meter.per_job(size))["cpu_ms_per_job"]
            if first:
                found |= told(await statuses(api, own, plan, size))
                meter.leave_out(found["status_cpu_seconds"])
            found |= told(await finish(api, nodes, own, plan, size))
            found |= told(await idle(own, plan.idle_seconds))
            meter.leave_out(found["idle_cpu_seconds"])
            found |= told(await collect(api, nodes, plan, size))
            found |= told(meter.per_job(size) | {"peak_mb": own.peak_mb()})
            if first:
                found |= told(await late(api, plan))
            found["requests_by_verb"] = own.requests_by_verb()
            found["control_plane_cpu_seconds"] = plane.cpu_seconds()
    return found


async def singles(api: ApiServer, nodes: FakeNodes, plan: Plan) -> dict[str, Any]:
    """Seconds from one job's creation until all of its objects are there, on an idle system."""
    taken = []
    for number in range(plan.single_jobs):
        async with asyncio.TaskGroup() as group:
            seen = ToldObjects(SPACE)
            watches = [group.create_task(seen.watch(api, kind)) for kind in (*CHILDREN, Kind.Pod)]
            await seen.are_open(len(watches))
            began = time.monotonic()
            await api.post(JOBS_PATH, many_jobs.job(f"single{number}"))
            last = await seen.all(len(watches) - 2 + PODS)
            taken.append((last.at - began, last.kind.name))
            for each in watches:
                each.cancel()
        await api.delete(f"{JOBS_PATH}/single{number}")
        await wait(nodes, lambda told: told["pods"] == 0, plan)
    taken.sort()
    longest, last_kind = taken[-1]
    say(f"the longest single job waited for its {last_kind}")
    half = statistics.median(seconds for seconds, _ in taken)
    return {"single_p50_seconds": half, "single_p99_seconds": longest}


async def large(api: ApiServer, nodes: FakeNodes, own: OperatorUsage, plan: Plan) -> dict[str, Any]:
    """One job of very many replicas: until it runs, and is gone."""
    replicas, path = plan.large_replicas, f"{JOBS_PATH}/large"
    before, began = own.cpu_seconds(), time.monotonic()
    await api.post(JOBS_PATH, many_jobs.job("large", replicas))
    running = await wait(nodes, lambda told: told["ready"] == replicas + PODS - 2, plan) - began

    async def says_so() -> bool:
        status = (await api.get(path)).get("status", {})
        return bool(status.get("readyReplicas") == replicas and status.get("phase") == "Running")

    await many_at_once.until(says_so, plan.wait_seconds)
    await api.delete(path)
    await wait(nodes, lambda told: told["pods"] == 0, plan)
    used = own.cpu_seconds() - before
    return {"large_running_seconds": running, "large_cpu_seconds": used}


async def begin(
    api: ApiServer, nodes: FakeNodes, own: OperatorUsage, plan: Plan, size: int
) -> dict[str, Any]:
    """Create all jobs at once and wait until they run."""
    began = time.monotonic()
    await many_at_once.together(
        range(size), lambda number: api.post(JOBS_PATH, many_jobs.job(f"j{number}"))
    )
    created = time.monotonic() - began
    running = await wait(nodes, lambda told: told["ready"] >= size * PODS, plan) - began
    await all_jobs(api, own, plan, Phase.RUNNING, size)
    return {"jobs_created_seconds": created, "running_seconds": running}


async def statuses(api: ApiServer, own: OperatorUsage, plan: Plan, size: int) -> dict[str, Any]:
    """Every job's coordinator writes its status every ten seconds."""
    before, requests = own.cpu_seconds(), own.requests()
    began = time.monotonic()
    for turn in range(plan.statuses):
        await many_at_once.together(range(size), partial(tell, api, turn))
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
    header = {key: many_jobs.job(f"j{number}")[key] for key in ("apiVersion", "kind", "metadata")}
    path = f"{JOBS_PATH}/j{number}/status?fieldManager={HOLDER['coordinator']}&force=true"
    await api.patch(path, {**header, "status": {"training": training}}, APPLY)


async def finish(
    api: ApiServer, nodes: FakeNodes, own: OperatorUsage, plan: Plan, size: int
) -> dict[str, Any]:
    """End every coordinator and wait until the jobs have ended."""
    began = time.monotonic()
    nodes.complete_all()
    done = {"done": size, "pods": size}
    await wait(nodes, lambda told: all(told[key] == value for key, value in done.items()), plan)
    await all_jobs(api, own, plan, Phase.COMPLETE, size)
    return {"complete_seconds": time.monotonic() - began}


async def collect(api: ApiServer, nodes: FakeNodes, plan: Plan, size: int) -> dict[str, Any]:
    """Let the jobs' time pass and wait until they are gone."""
    began = time.monotonic()
    patch = {"spec": {"ttlSecondsAfterFinished": 1}}
    await many_at_once.together(
        range(size), lambda number: api.patch(f"{JOBS_PATH}/j{number}", patch)
    )
    await wait(nodes, lambda told: told["pods"] == 0, plan)
    await no_jobs(api, plan)
    return {"collected_seconds": time.monotonic() - began}


async def late(api: ApiServer, plan: Plan) -> dict[str, Any]:
    """Seconds for which jobs that have ended outlive their time, which passes for all at once."""
    seconds = await ended_jobs.lateness(api, plan.single_jobs)
    return {"ttl_late_p50_seconds": statistics.median(seconds), "ttl_late_seconds": seconds[-1]}


async def idle(own: OperatorUsage, seconds: float) -> dict[str, Any]:
    """What the operator uses while nothing happens."""
    requests = -1.0
    while requests < own.requests():
        # Numbers of pods are written ten seconds after the end.
        requests = own.requests()
        await asyncio.sleep(QUIET_SECONDS)
    before = own.cpu_seconds()
    await asyncio.sleep(seconds)
    used = own.cpu_seconds() - before
    return {"idle_cpu_seconds": used, "idle_share": used / seconds}


@asynccontextmanager
async def prepared(plane: ControlPlane) -> AsyncIterator[tuple[ApiServer, FakeNodes]]:
    """A namespace with a bound claim, the CRD and nodes."""
    plane.kubectl.apply(crd.definition())
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "kubelet.log"
        with fake_nodes.running(plane.kubeconfig, NODES, log) as nodes:
            async with ApiServer(plane.kubeconfig, many_at_once.AT_ONCE) as api:
                await many_at_once.until(partial(serves_jobs, api), BEGIN_SECONDS)
                await many_jobs.make_space(api)
                await many_at_once.until(partial(many_jobs.is_bound, api), BEGIN_SECONDS)
                await warm_up(api, nodes)
                yield api, nodes


async def create(api: ApiServer, bodies: Iterable[dict[str, Any]]) -> None:
    """Make the objects of a job, one after the other."""
    for body in bodies:
        await api.post(many_jobs.path_of(body), body)


async def serves_jobs(api: ApiServer) -> bool:
    try:
        await api.get(JOBS_PATH)
    except RuntimeError:
        return False
    return True


async def warm_up(api: ApiServer, nodes: FakeNodes) -> None:
    """Let the control plane meet each kind once: its first requests take seconds."""
    bodies = many_jobs.plain_children("warm")
    await create(api, bodies)
    await asyncio.to_thread(nodes.wait, lambda told: told["ready"] == PODS, 120)
    for body in bodies:
        options = {"propagationPolicy": "Background"}
        await api.delete(f"{many_jobs.path_of(body)}/{body['metadata']['name']}", options)
    await asyncio.to_thread(nodes.wait, lambda told: told["pods"] == 0, 120)


async def all_jobs(api: ApiServer, own: OperatorUsage, plan: Plan, phase: Phase, size: int) -> None:
    """Wait until the operator counts so many jobs of a phase, and see that all of them are.

    A list of thousands of jobs costs the API server seconds: one is enough.
    """
    await many_at_once.until(lambda: own.jobs().get(phase, 0) == size, plan.wait_seconds)
    items = (await api.get(JOBS_PATH))["items"]
    phases = Counter(each.get("status", {}).get("phase", "") for each in items)
    if phases != Counter({phase: size}):
        message = f"the operator counts {size} jobs {phase}, the API server has {dict(phases)}"
        raise RuntimeError(message)


async def no_jobs(api: ApiServer, plan: Plan) -> None:
    """Wait until there are none."""

    async def are_gone() -> bool:
        return not (await api.get(f"{JOBS_PATH}?limit=1"))["items"]

    await many_at_once.until(are_gone, plan.wait_seconds)


async def wait(nodes: FakeNodes, reached: Callable[[dict[str, Any]], bool], plan: Plan) -> float:
    return await asyncio.to_thread(nodes.wait, reached, plan.wait_seconds)


def told(figures: dict[str, Any]) -> dict[str, Any]:
    """The same figures, for who waits."""
    say(" ".join(f"{name}={value:.3g}" for name, value in figures.items()))
    return figures


def say(what: str) -> None:
    sys.stderr.write(f"{what}\n")


if __name__ == "__main__":
    main()
