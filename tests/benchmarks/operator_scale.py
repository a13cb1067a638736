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
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import (
    many_at_once,
    many_jobs,
    measured_planes,
    operator_life,
    operator_rights,
    operator_usage,
    plane_usage,
)
from builders.api_server import ApiServer
from builders.many_jobs import PODS
from builders.measured_planes import BEGIN_SECONDS, create, prepared, say, told, wait
from builders.operator_life import Plan
from builders.operator_usage import Meter
from builders.report import Bar, print_report
from cluster import prerequisites
from cluster.bare import ControlPlane

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
    with measured_planes.plane() as alone:
        found = asyncio.run(baseline(plan, alone, size))
    say(f"{json.dumps(found)}\n{size} jobs: operator")
    with measured_planes.plane() as used:
        found |= asyncio.run(operator(plan, used, size, first=first))
    found["running_ratio"] = found["running_seconds"] / found["baseline_running_seconds"]
    say(json.dumps({f"{size} jobs": found}))
    return found


async def baseline(plan: Plan, plane: ControlPlane, size: int) -> dict[str, Any]:
    """All objects by a script, as fast as it can."""
    async with prepared(plane) as (api, nodes):
        await measured_planes.warm_up(api, nodes)
        jobs = [many_jobs.plain_children(f"j{number}") for number in range(size)]
        rights = operator_rights.grant(plane.kubectl)
        async with ApiServer(rights.kubeconfig, many_at_once.AT_ONCE) as own:
            began, before = time.monotonic(), plane.cpu_seconds()
            await many_at_once.together(jobs, partial(create, own))
            created = time.monotonic() - began
        running = (
            await wait(nodes, lambda told: told["ready"] >= size * PODS, plan.wait_seconds) - began
        )
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
        await measured_planes.warm_up(api, nodes)
        with operator_usage.measured(operator_rights.grant(plane.kubectl)) as own:
            await many_at_once.until(own.is_ready, BEGIN_SECONDS)
            found: dict[str, Any] = {}
            if first:
                found |= told(await operator_life.singles(api, nodes, plan))
                if plan.large_replicas:
                    found |= told(await operator_life.large(api, nodes, own, plan))
            meter, before = Meter(own), plane.cpu_seconds()
            found |= told(await operator_life.begin(api, nodes, own, plan, size))
            found["running_writes"] = plane_usage.writes(plane)
            used = plane_usage.since(before, plane)
            found["running_control_plane_cpu_seconds"] = told(used)
            found["running_cpu_ms_per_job"] = told(meter.per_job(size))["cpu_ms_per_job"]
            if first:
                found |= told(await operator_life.statuses(api, own, plan, size))
                meter.leave_out(found["status_cpu_seconds"])
            found |= told(await operator_life.finish(api, nodes, own, plan, size))
            found |= told(await operator_life.idle(own, plan.idle_seconds))
            meter.leave_out(found["idle_cpu_seconds"])
            found |= told(await operator_life.collect(api, nodes, plan, size))
            found |= told(meter.per_job(size) | {"peak_mb": own.peak_mb()})
            if first:
                found |= told(await operator_life.late(api, plan))
            found["requests_by_verb"] = own.requests_by_verb()
            found["control_plane_cpu_seconds"] = plane.cpu_seconds()
    return found


if __name__ == "__main__":
    main()
