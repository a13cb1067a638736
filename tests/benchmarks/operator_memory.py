"""Thousands of jobs that stand still: the memory that they take, and what they cost.

    .venv/bin/python tests/benchmarks/operator_memory.py [--quick] [--jobs 5000]

The operator's process begins with a cluster full of jobs (each 2 shards, 2 replicas and a
coordinator): first all of them train, then all of them have ended. The API server is one of the
benchmark's own, which tells what is there and changes nothing; operator_scale makes its jobs on a
real one.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import operator_usage, standing_server
from builders.operator_usage import OperatorUsage
from builders.report import Bar, print_report
from builders.standing_jobs import StandingJobs
from cluster import Kubectl

START_SECONDS = 300
QUIET_SECONDS = 2.0
EVERY_SECONDS = 0.5


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    jobs: int
    idle_seconds: float
    """Of jobs that have ended. The operator lists everything once in ten minutes."""


FULL = Plan(jobs=5000, idle_seconds=600)
QUICK = Plan(jobs=50, idle_seconds=2)


def main() -> None:
    """Measure both and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few jobs: for function only")
    parser.add_argument("--jobs", type=int, help="another number")
    asked = parser.parse_args()
    plan = QUICK if asked.quick else FULL
    jobs = asked.jobs or plan.jobs
    training = measure(StandingJobs(jobs, ended=False), idle_seconds=0)
    ended = measure(StandingJobs(jobs, ended=True), plan.idle_seconds)
    peak = max(training["peak_mb"], ended["peak_mb"])
    bars = [
        Bar(f"peak memory in MB with {jobs} jobs", peak, 300, at_least=False),
        Bar("share of a core with jobs that have ended", ended["idle_share"], 0.01, at_least=False),
    ]
    print_report("operator_memory", {"jobs": jobs, "training": training, "ended": ended}, bars)


def measure(jobs: StandingJobs, idle_seconds: float) -> dict[str, Any]:
    """Let an operator find the jobs, and wait."""
    with standing_server.serving(jobs) as server, operator(server.url) as own:
        began = time.monotonic()
        wait_until_settled(own, jobs.number)
        found = {
            "objects": len(jobs),
            "start_seconds": time.monotonic() - began,
            "start_cpu_seconds": own.cpu_seconds(),
        }
        if idle_seconds:
            before = own.cpu_seconds()
            time.sleep(idle_seconds)
            found["idle_share"] = (own.cpu_seconds() - before) / idle_seconds
        found["peak_mb"] = own.peak_mb()
        if server.changes:
            message = f"nothing was to be changed, but {len(server.changes)}: {server.changes[:3]}"
            raise RuntimeError(message)
    return found


@contextmanager
def operator(url: str) -> Iterator[OperatorUsage]:
    """An operator for all namespaces of a server."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = standing_server.kubeconfig(Path(folder), url)
        with operator_usage.measured(Kubectl(kubeconfig)) as own:
            yield own


def wait_until_settled(own: OperatorUsage, jobs: int) -> None:
    """Return when every job was looked at and no further look follows."""
    end = time.monotonic() + START_SECONDS
    while not (own.is_ready() and own.looks() >= jobs and _is_quiet(own)):
        if time.monotonic() > end:
            message = f"not in {START_SECONDS} s"
            raise TimeoutError(message)
        time.sleep(EVERY_SECONDS)


def _is_quiet(own: OperatorUsage) -> bool:
    before = own.looks()
    time.sleep(QUIET_SECONDS)
    return own.looks() == before


if __name__ == "__main__":
    main()
