"""What the operator does for many jobs, phase by phase, for benchmarks."""

import asyncio
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from builders import many_at_once, many_jobs
from builders.api_server import APPLY, METADATA, METADATA_LIST, ApiServer
from builders.fake_nodes import FakeNodes
from builders.many_jobs import JOBS_PATH, PODS, SPACE
from builders.measured_planes import wait
from builders.operator_usage import OperatorUsage
from builders.report import say
from disttrain.job.cluster_names import COORDINATOR_FIELD_MANAGER
from disttrain.job.status import Phase
from disttrain.job.status_section import ConditionType
from disttrain_operator.kinds import CHILDREN, Kind
from disttrain_operator.policies import leases

STATUS_SECONDS = 10
QUIET_SECONDS = 12
KEEP_SECONDS = 2
"""For which jobs are kept that have ended."""
LATE_SECONDS = 120
OF_ITS_LEASE = 2 * math.ceil(QUIET_SECONDS / leases.RENEW_SECONDS)
"""Requests in so long that no job asks for: write its own Lease, and list those of others."""


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


class Told(NamedTuple):
    """When the last object was told of, on the machine's monotonic clock, and what it was."""

    at: float
    kind: Kind


class ToldObjects:
    """New objects of jobs in a namespace, as watches tell of them."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._open = asyncio.Semaphore(0)
        self._seen = asyncio.Semaphore(0)
        self._last = Told(0.0, Kind.DistTrainJob)

    async def watch(self, api: ApiServer, kind: Kind) -> None:
        """Take in new objects of a kind until cancelled."""
        path = kind.value.path(self._namespace) + "?labelSelector=disttrain.dev/job-uid"
        listed = await api.get(f"{path}&limit=1", accept=METADATA_LIST)
        self._open.release()
        version = listed["metadata"]["resourceVersion"]
        async for event in api.watch(path, version, accept=METADATA):
            if event["type"] == "ADDED":
                self._last = Told(time.monotonic(), kind)
                self._seen.release()

    async def are_open(self, number: int) -> None:
        """Return when so many watches are open."""
        for _ in range(number):
            await self._open.acquire()

    async def all(self, number: int) -> Told:
        """Return the last of so many objects."""
        async with asyncio.timeout(60):
            for _ in range(number):
                await self._seen.acquire()
        return self._last


@dataclass(frozen=True)
class OperatorLife:
    """The phases, one after another; each gives its figures."""

    api: ApiServer
    nodes: FakeNodes
    own: OperatorUsage
    plan: Plan
    size: int
    """Jobs at once."""

    async def submit(self, name: str) -> None:
        await self.api.post(JOBS_PATH, many_jobs.job(name))

    async def singles(self) -> dict[str, Any]:
        """Seconds from one job's creation until all of its objects are there, on an idle system."""
        taken = []
        for number in range(self.plan.single_jobs):
            async with asyncio.TaskGroup() as group:
                seen = ToldObjects(SPACE)
                kinds = (*CHILDREN, Kind.Pod)
                watches = [group.create_task(seen.watch(self.api, kind)) for kind in kinds]
                await seen.are_open(len(watches))
                began = time.monotonic()
                await self.submit(f"single{number}")
                last = await seen.all(len(watches) - 2 + PODS)
                taken.append((last.at - began, last.kind.name))
                for each in watches:
                    each.cancel()
            await self.api.delete(f"{JOBS_PATH}/single{number}")
            await self._no_pods()
        taken.sort()
        longest, last_kind = taken[-1]
        say(f"the longest single job waited for its {last_kind}")
        half = statistics.median(seconds for seconds, _ in taken)
        return {"single_p50_seconds": half, "single_p99_seconds": longest}

    async def large(self) -> dict[str, Any]:
        """One job of very many replicas: until it runs, and is gone."""
        replicas, path = self.plan.large_replicas, f"{JOBS_PATH}/large"
        before, began = self.own.cpu_seconds(), time.monotonic()
        await self.api.post(JOBS_PATH, many_jobs.job("large", replicas))
        running = await self._pods(lambda told: told["ready"] == replicas + PODS - 2) - began

        async def says_so() -> bool:
            status = (await self.api.get(path)).get("status", {})
            runs = status.get("phase") == "Running"
            return bool(runs and status.get("readyReplicas") == replicas)

        await many_at_once.until(says_so, self.plan.wait_seconds)
        await self.api.delete(path)
        await self._no_pods()
        used = self.own.cpu_seconds() - before
        return {"large_running_seconds": running, "large_cpu_seconds": used}

    async def begin(self) -> dict[str, Any]:
        """Create all jobs at once and wait until they run."""
        began = time.monotonic()
        await many_at_once.together((f"j{number}" for number in range(self.size)), self.submit)
        created = time.monotonic() - began
        running = await self._pods(lambda told: told["ready"] >= self.size * PODS) - began
        await self._all_jobs(Phase.RUNNING)
        return {"jobs_created_seconds": created, "running_seconds": running}

    async def statuses(self) -> dict[str, Any]:
        """Every job's coordinator writes its status every ten seconds."""
        before, requests = self.own.cpu_seconds(), self.own.requests()
        began = time.monotonic()
        for turn in range(self.plan.statuses):
            await many_at_once.together(range(self.size), partial(self._tell, turn))
            await asyncio.sleep(max(0.0, began + (turn + 1) * STATUS_SECONDS - time.monotonic()))
        used, taken = self.own.cpu_seconds() - before, time.monotonic() - began
        return {
            "status_seconds": taken,
            "status_cpu_seconds": used,
            "status_cpu_share": used / taken,
            "status_requests_of_the_operator": self.own.requests() - requests,
        }

    async def _tell(self, turn: int, number: int) -> None:
        """Write a job's status as its coordinator does."""
        training = {"epoch": turn, "samples": 1000 * (turn + 1), "loss": 1 / (turn + 1)}
        job = many_jobs.job(f"j{number}")
        header = {key: job[key] for key in ("apiVersion", "kind", "metadata")}
        path = f"{JOBS_PATH}/j{number}/status?fieldManager={COORDINATOR_FIELD_MANAGER}&force=true"
        await self.api.patch(path, {**header, "status": {"training": training}}, APPLY)

    async def finish(self) -> dict[str, Any]:
        """End every coordinator and wait until the jobs have ended."""
        began = time.monotonic()
        self.nodes.complete_all()
        await self._pods(lambda told: told["done"] == told["pods"] == self.size)
        await self._all_jobs(Phase.COMPLETE)
        return {"complete_seconds": time.monotonic() - began}

    async def collect(self) -> dict[str, Any]:
        """Let the jobs' time pass and wait until they are gone."""
        began = time.monotonic()
        patch = {"spec": {"ttlSecondsAfterFinished": 1}}
        await many_at_once.together(
            range(self.size), lambda number: self.api.patch(f"{JOBS_PATH}/j{number}", patch)
        )
        await self._no_pods()

        async def are_gone() -> bool:
            return not (await self.api.get(f"{JOBS_PATH}?limit=1"))["items"]

        await many_at_once.until(are_gone, self.plan.wait_seconds)
        return {"collected_seconds": time.monotonic() - began}

    async def late(self) -> dict[str, Any]:
        """Seconds for which jobs outlive their time, whose coordinators end at once."""
        number = self.plan.single_jobs
        listed = await self.api.get(f"{JOBS_PATH}?limit=1", accept=METADATA_LIST)
        watched = self.api.watch(JOBS_PATH, listed["metadata"]["resourceVersion"])
        jobs = [
            many_jobs.job(f"ended{each}", ttlSecondsAfterFinished=KEEP_SECONDS)
            for each in range(number)
        ]
        await many_at_once.together(jobs, partial(self.api.post, JOBS_PATH))
        seconds: list[float] = []
        async with asyncio.timeout(LATE_SECONDS), aclosing(watched) as events:
            async for event in events:
                if event["type"] == "DELETED":
                    seconds.append(time.time() - _ended_at(event["object"]) - KEEP_SECONDS)
                if len(seconds) == number:
                    break
        half = statistics.median(seconds)
        return {"ttl_late_p50_seconds": half, "ttl_late_seconds": max(seconds)}

    async def idle(self) -> dict[str, Any]:
        """What the operator uses while nothing happens."""
        requests = -math.inf
        while self.own.requests() - requests > OF_ITS_LEASE:
            # Numbers of pods are written ten seconds after the end.
            requests = self.own.requests()
            await asyncio.sleep(QUIET_SECONDS)
        before = self.own.cpu_seconds()
        await asyncio.sleep(self.plan.idle_seconds)
        used = self.own.cpu_seconds() - before
        return {"idle_cpu_seconds": used, "idle_share": used / self.plan.idle_seconds}

    async def _pods(self, reached: Callable[[dict[str, Any]], bool]) -> float:
        return await wait(self.nodes, reached, self.plan.wait_seconds)

    async def _no_pods(self) -> None:
        await self._pods(lambda told: told["pods"] == 0)

    async def _all_jobs(self, phase: Phase) -> None:
        """Wait until the operator counts all jobs in a phase, and see that all of them are.

        A list of thousands of jobs costs the API server seconds: one is enough.
        """
        limit = self.plan.wait_seconds
        await many_at_once.until(lambda: self.own.jobs().get(phase, 0) == self.size, limit)
        items = (await self.api.get(JOBS_PATH))["items"]
        phases = Counter(each.get("status", {}).get("phase", "") for each in items)
        if phases != Counter({phase: self.size}):
            told = f"the operator counts {self.size} jobs {phase}"
            message = f"{told}, the API server has {dict(phases)}"
            raise RuntimeError(message)


def _ended_at(job: dict[str, Any]) -> float:
    conditions = {each["type"]: each for each in job["status"]["conditions"]}
    told = conditions[ConditionType.COMPLETE]["lastTransitionTime"]
    return datetime.fromisoformat(told).timestamp()
