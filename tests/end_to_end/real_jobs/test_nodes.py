"""Pods of a real job are evicted from a node that takes no others; nothing is lost by it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from builders import pods
from builders.cluster_training import (
    PATIENT,
    ClusterTraining,
    assert_nothing_was_lost_or_repeated,
)
from cluster import Kubectl
from cluster.errors import CommandFailed

pytestmark = [pytest.mark.alone, pytest.mark.nightly]
CLAIM = "mine"


def test_pods_of_every_role_are_evicted_while_the_job_trains(
    kubectl: Kubectl, job: ClusterTraining
) -> None:
    # A claim of the user's own: of one that is made for one node all pods may go at once.
    job.claim = CLAIM
    job.kubectl.apply(pods.claim(CLAIM))
    # No checkpoint but those that evicted processes write.
    checkpoint = {"everySeconds": 1000, "volume": {"claimName": CLAIM}}
    job.apply(checkpoint=checkpoint, coordinator=PATIENT)
    job.train(0.06)
    # They train before their kubelet and the controller of budgets say that they are ready.
    job.wait_until(lambda: may_be_disrupted(job), "a shard may go")
    with no_new_pods(kubectl):
        first, second = names(job, "shard")
        evict(job, first)
        # The budget of the shards: a second one stays as long as the first is not back.
        with pytest.raises(CommandFailed, match="disruption budget"):
            evict(job, second)
    job.wait_until(lambda: ready(job, "shard") == 2, "the shard is back")
    before = job.samples()
    job.wait_until(lambda: job.samples() > before, "training goes on")
    assert job.restarts("replica") == [0, 0]

    with no_new_pods(kubectl):
        replica, coordinator = names(job, "replica")[0], names(job, "coordinator")[0]
        evict(job, replica)
        evict(job, coordinator)
        job.wait_until(lambda: coordinator not in names(job, "coordinator"), "it is gone")
    assert not job.has_summary(), "the job ended before"
    job.wait_until(lambda: ready(job, "coordinator") == 1, "the coordinator is back")

    summary = job.complete()
    # Nobody died: of an eviction a process learns in time.
    assert [job.status()["restarts"][role] for role in ("shard", "replica")] == [0, 0]
    assert_nothing_was_lost_or_repeated(job, summary)


@contextmanager
def no_new_pods(kubectl: Kubectl) -> Iterator[None]:
    """What `kubectl cordon` does to all nodes that take pods."""
    nodes = kubectl.items("nodes")
    names = [each["metadata"]["name"] for each in nodes if not each["spec"].get("unschedulable")]
    kubectl.run("cordon", *names)
    try:
        yield
    finally:
        kubectl.run("uncordon", *names)


def names(job: ClusterTraining, role: str) -> list[str]:
    """Of the pods that nobody has told to go."""
    found = (
        pod["metadata"] for pod in job.pods(role) if "deletionTimestamp" not in pod["metadata"]
    )
    return sorted(metadata["name"] for metadata in found)


def ready(job: ClusterTraining, role: str) -> int:
    """How many pods of the role are ready."""
    return sum(
        each["type"] == "Ready" and each["status"] == "True"
        for pod in job.pods(role)
        if "deletionTimestamp" not in pod["metadata"]
        for each in pod["status"].get("conditions", [])
    )


def may_be_disrupted(job: ClusterTraining) -> bool:
    """Whether the budget of the shards has one to spare."""
    budget = job.kubectl.get("poddisruptionbudget", f"{job.name}-shard")
    return ready(job, "shard") == 2 and budget.get("status", {}).get("disruptionsAllowed") == 1


def evict(job: ClusterTraining, pod: str) -> None:
    """What `kubectl drain` asks for, for one pod."""
    place = f"/api/v1/namespaces/{job.kubectl.namespace}/pods/{pod}/eviction"
    metadata = {"name": pod, "namespace": job.kubectl.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    job.kubectl.run("create", "--raw", place, "-f", "-", stdin=json.dumps(body))
