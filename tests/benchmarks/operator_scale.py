"""Many jobs at once: what the operator adds to what Kubernetes itself needs for their objects.

    .venv/bin/python tests/benchmarks/operator_scale.py [--quick] [--jobs 1000 5000] [--large 0]
        [--contenders script jobset tfjob]

A real API server, controller manager and scheduler (1,000 requests a second and 20 objects at a
time for each controller), nodes that are not there, a fake kubelet that makes pods Ready at once.
Each job has 2 shards, 2 replicas and a coordinator. Needs root, as the test cluster does, and that
no other test cluster runs.

Contenders make the same pods, each on a control plane of its own in the same run, with rights of
its own: of an administrator the API server asks less. The script is a plain asyncio program that
makes a fixed set of objects, of 32 jobs at a time. JobSet (v0.10.1) and TFJob (training operator
v1.8.1) are built from their Go modules, which takes minutes the first time; with `--quick` only
those are there that are built already.

Running: all pods are Ready. Complete: every coordinator has ended, the outcomes are written and
the other pods are gone. Collected: every job is deleted after its time, and no pod is left.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import (
    many_at_once,
    many_jobs,
    measured_planes,
    operator_rights,
    operator_usage,
)
from builders.frozen_script import FrozenScript
from builders.many_jobs import PODS
from builders.measured_planes import BEGIN_SECONDS, PlaneMeter, prepared, told, wait
from builders.operator_life import OperatorLife, Plan
from builders.operator_usage import Meter
from builders.report import Bar, print_report, say
from builders.rivals import JOBSET, TFJOB, Rival
from cluster import prerequisites
from cluster.bare import ControlPlane

Contender: TypeAlias = FrozenScript | Rival
_ALL: tuple[Contender, ...] = (FrozenScript(), JOBSET, TFJOB)
CONTENDERS = {each.name: each for each in _ALL}
RATIO_BOUNDS = {"script": 1.3, "jobset": 1.2}
"""TFJob's figures stand beside them."""
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
    parser.add_argument("--contenders", nargs="*", choices=CONTENDERS, help="others than all")
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
    chosen = chosen_contenders(asked.contenders, quick=asked.quick)
    left_out = [name for name in CONTENDERS if name not in chosen]
    say(f"contenders: {' '.join(chosen)}; left out: {' '.join(left_out) or 'none'}")
    figures: dict[str, Any] = {"limits": asdict(measured_planes.LIMITS), "left_out": left_out}
    for place, size in enumerate(sizes):
        figures[f"{size} jobs"] = measure(plan, size, chosen, first=place == 0)
    print_report("operator_scale", figures, list(bars(figures, sizes)))


def chosen_contenders(asked: Sequence[str] | None, *, quick: bool) -> tuple[str, ...]:
    """Those asked for, or all; the quick form builds none that nobody asked for."""
    if asked is not None:
        return tuple(name for name in CONTENDERS if name in asked)
    return tuple(name for name, each in CONTENDERS.items() if each.is_built() or not quick)


def bars(figures: dict[str, Any], sizes: Iterable[int]) -> Iterator[Bar]:
    """The bounds of each size."""
    for size in sizes:
        found = figures[f"{size} jobs"]
        for name, key, bound in (
            *(
                (f"seconds to Running against {name}", f"ratio_to_{name}", bound)
                for name, bound in RATIO_BOUNDS.items()
            ),
            ("CPU milliseconds per job life", "cpu_ms_per_job", 100),
            ("API requests per job until Running", "running_requests_per_job", 9),
            ("API requests per job life", "requests_per_job", 14),
            ("peak memory in MB", "peak_mb", 300),
            ("share of a core with finished jobs", "idle_share", 0.01),
            ("p99 seconds until a single job has its objects", "single_p99_seconds", 1),
            ("most seconds that ended jobs outlive their time", "ttl_late_seconds", 2),
        ):
            if key in found:
                yield Bar(f"{size} jobs: {name}", found[key], bound, at_least=False)


def measure(plan: Plan, size: int, chosen: Sequence[str], *, first: bool) -> dict[str, Any]:
    """Contenders and operator at one size."""
    found: dict[str, Any] = {}
    for name in chosen:
        say(f"{size} jobs: {name}")
        with measured_planes.plane() as alone:
            found[name] = asyncio.run(contend(CONTENDERS[name], plan, alone, size))
        say(json.dumps(found[name]))
    say(f"{size} jobs: operator")
    with measured_planes.plane() as used:
        found |= asyncio.run(operator(plan, used, size, first=first))
    for name in chosen:
        found[f"ratio_to_{name}"] = found["running_seconds"] / found[name]["running_seconds"]
    say(json.dumps({f"{size} jobs": found}))
    return found


async def contend(
    contender: Contender, plan: Plan, plane: ControlPlane, size: int
) -> dict[str, Any]:
    """All jobs by another, until they run."""
    async with prepared(plane) as (api, nodes), contender.started(plane) as make:
        await measured_planes.warm_up(api, nodes, make, contender.path)
        meter, began = PlaneMeter(plane), time.monotonic()
        await many_at_once.together((f"j{number}" for number in range(size)), make)
        created = time.monotonic() - began
        running = await wait(nodes, lambda told: told["ready"] >= size * PODS, plan.wait_seconds)
        used = meter.cpu_seconds()
        writes = meter.writes()
    return {
        "created_seconds": created,
        "running_seconds": running - began,
        # The script's own is not counted: it is this very process.
        "cpu_seconds": used.pop(contender.name, None),
        "control_plane_cpu_seconds": used,
        "writes": writes,
    }


async def operator(plan: Plan, plane: ControlPlane, size: int, *, first: bool) -> dict[str, Any]:
    """The life of many jobs."""
    async with prepared(plane) as (api, nodes):
        with operator_usage.measured(operator_rights.grant(plane.kubectl)) as own:
            await many_at_once.until(own.is_ready, BEGIN_SECONDS)
            life = OperatorLife(api, nodes, own, plan, size)
            await measured_planes.warm_up(api, nodes, life.submit, many_jobs.JOBS_PATH)
            found: dict[str, Any] = {}
            if first:
                found |= told(await life.singles())
                if plan.large_replicas:
                    found |= told(await life.large())
            meter, of_plane = Meter(own), PlaneMeter(plane)
            found |= told(await life.begin())
            found["running_control_plane_cpu_seconds"] = told(of_plane.cpu_seconds())
            found["running_writes"] = of_plane.writes()
            found |= {f"running_{name}": value for name, value in told(meter.per_job(size)).items()}
            if first:
                found |= told(await life.statuses())
                meter.leave_out(found["status_cpu_seconds"])
            found |= told(await life.finish())
            found |= told(await life.idle())
            meter.leave_out(found["idle_cpu_seconds"])
            found |= told(await life.collect())
            found |= told(meter.per_job(size) | {"peak_mb": own.peak_mb()})
            if first:
                found |= told(await life.late())
            found["requests_by_verb"] = own.requests_by_verb()
            found["control_plane_cpu_seconds"] = plane.cpu_seconds()
    return found


if __name__ == "__main__":
    main()
