"""Seconds from kill -9 of a shard, and of a replica, until training advances as fast as before.

Real pods on the test cluster: 2 shards and 2 replicas of a task whose steps only last. The rate
is that of samples trained, as status.json on the volume says twice a second. Training has come
back at the first instant from which a window of seconds has at least 0.9 of the rate that the same
window had before. Each role is killed twice: for the second death of a container the kubelet waits
10 seconds, for later ones longer. Needs what the end-to-end tests need; says so elsewhere.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import cluster_training, operator_process, product_images
from builders.cluster_training import ClusterTraining
from builders.report import Bar, print_report
from cluster import Cluster, Kubectl, commands, hooks, namespaces, prerequisites
from cluster.errors import Unavailable
from cluster.hooks import Hooks
from disttrain_generators import crd

STEP_SECONDS = 0.1
LONGEST_SECONDS = {"first": 30.0, "second": 60.0}
"""A process imports PyTorch again; before the second time the kubelet waits for 10 seconds."""
MOST_LOST_BY_A_REPLICA = 0
GIVE_UP = timedelta(minutes=3)
Sight = tuple[float, int]
"""A time of the monotonic clock, and the samples trained by then."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    window_seconds: float
    incarnations: tuple[str, ...]
    share_of_rate: float
    """With which training counts as back."""


FULL = Plan(10.0, ("first", "second"), share_of_rate=0.9)
# Beside other tests, which may leave it half of the cores that it had before.
QUICK = Plan(4.0, ("first",), share_of_rate=0.4)


def main() -> None:
    """Measure and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one death of each role")
    parser.add_argument("--cluster", choices=("own", "existing"), default="own")
    arguments = parser.parse_args()
    is_ours = arguments.cluster == "own"
    reason = prerequisites.reason_against() if is_ours else None
    if reason is not None:
        print_report("recovery", {"skipped": reason}, [])
        return
    plan = QUICK if arguments.quick else FULL
    with own() if is_ours else existing() as found, a_job(*found) as job:
        deaths = [
            {"role": role, "death": incarnation, **death(job, role, plan)}
            for incarnation in plan.incarnations
            for role in ("shard", "replica")
        ]
    figures = {
        "shards": 2,
        "replicas": 2,
        "step_seconds": STEP_SECONDS,
        "window_seconds": plan.window_seconds,
        "share_of_rate": plan.share_of_rate,
        "deaths": deaths,
    }
    print_report("recovery", figures, bars(deaths))


def bars(deaths: list[dict[str, Any]]) -> list[Bar]:
    """One for each death; a replica's costs no update either."""
    found = []
    for each in deaths:
        name = f"{each['role']}, {each['death']} death"
        bound = LONGEST_SECONDS[each["death"]]
        found.append(Bar(f"{name}: seconds", each["seconds"], bound, at_least=False))
        if each["role"] == "replica":
            lost = each["updates_lost"]
            found.append(Bar(f"{name}: updates lost", lost, MOST_LOST_BY_A_REPLICA, at_least=False))
    return found


def death(job: ClusterTraining, role: str, plan: Plan) -> dict[str, Any]:
    """Kill the first pod's process, and watch until training is as fast as before."""
    window = plan.window_seconds
    before = list(watched(job, window))
    rate = (before[-1][1] - before[0][1]) / (before[-1][0] - before[0][0])
    lost = job.progress()["updatesLost"]
    killed = time.monotonic()
    job.kill(role)
    seen: list[Sight] = []
    while (back := first_instant(seen, window, plan.share_of_rate * rate)) is None:
        seen += watched(job, 1.0)
        if time.monotonic() - killed > GIVE_UP.total_seconds():
            message = f"training has not come back: {job.progress()}"
            raise TimeoutError(message)
    return {
        "samples_per_second_before": rate,
        "seconds": back - killed,
        "updates_lost": job.progress()["updatesLost"] - lost,
    }


def first_instant(seen: list[Sight], window: float, rate: float) -> float | None:
    """The start of the first window with this rate, None while there is none.

    A window begins where the samples have just grown: between two sights nothing is known.
    """
    starts = [later for earlier, later in pairwise(seen) if later[1] > earlier[1]]
    for began, samples in starts:
        ends = [sight for sight in seen if sight[0] >= began + window]
        if ends and (ends[0][1] - samples) / (ends[0][0] - began) >= rate:
            return began
    return None


def watched(job: ClusterTraining, seconds: float) -> Iterator[Sight]:
    """What the volume says, several times a second."""
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        yield now, job.samples()
        time.sleep(0.1)


@contextmanager
def own() -> Iterator[tuple[Kubectl, Hooks]]:
    """That of this machine, which is started unless it was left running."""
    try:
        cluster = Cluster.attach()
    except Unavailable:
        with Cluster() as cluster:
            yield cluster.kubectl, Hooks(hooks.OURS)
        return
    yield cluster.kubectl, Hooks(hooks.OURS)


@contextmanager
def existing() -> Iterator[tuple[Kubectl, Hooks]]:
    """The one that the environment names, with its hooks."""
    yield Kubectl(Path(os.environ["KUBECONFIG"])), hooks.given()


@contextmanager
def a_job(kubectl: Kubectl, loading: Hooks) -> Iterator[ClusterTraining]:
    """A job that trains for longer than this takes, in a namespace of its own."""
    product_images.build_and_load(loading, product_images.runtime())
    kubectl.apply(crd.definition())
    place = namespaces.make(kubectl, f"recovery-{time.time_ns() % 10**6}")
    environment = cluster_training.environment()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "operator.log"
        with operator_process.running(place, log, **environment):
            job = ClusterTraining(loading, place)
            job.apply(step_seconds=STEP_SECONDS, stop={"epochs": 1000})
            job.train(1.0)
            wait_until_all_train(job)
            try:
                yield job
            finally:
                job.delete()
                namespaces.remove(kubectl, place.namespace)


def wait_until_all_train(job: ClusterTraining) -> None:
    """Return when both replicas take steps."""
    commands.wait_until(
        lambda: job.progress().get("liveReplicas") == 2, "both replicas train", limit=GIVE_UP
    )


if __name__ == "__main__":
    main()
