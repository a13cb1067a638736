"""What a person is told of a job that cannot start, or whose processes die."""

from datetime import timedelta
from typing import Any

import pytest

from builders import cluster_jobs
from builders.pretended_training import PretendedTraining
from cluster import busybox

SECONDS = timedelta(seconds=120)
"""A reason shows within seconds where nobody else uses the cores."""
MEMORY_LIMIT = "24Mi"
GREEDY = "sleep 1; all=0123456789abcdef; while true; do all=$all$all; done"


def replicas(**spec: Any) -> dict[str, Any]:
    return {"replicas": {"count": 1, "template": {"spec": spec}}}


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "disttrain", **fields}]}


@pytest.mark.parametrize(
    ("spec", "condition", "words"),
    [
        (replicas(nodeSelectr={"disk": "fast"}), "InvalidTemplate", "nodeSelectr"),
        (replicas(hostNetwork=True), "InvalidTemplate", "hostNetwork"),
        (
            replicas(securityContext={"runAsNonRoot": False, "runAsUser": 0}),
            "CannotStart",
            "violates PodSecurity",
        ),
        ({"image": "test.disttrain.dev/nothing:1"}, "CannotStart", "nothing:1"),
        (replicas(nodeSelector={"disk": "fast"}), "CannotStart", "Unschedulable"),
    ],
    ids=["unknown field", "host network", "pod security", "no image", "no node"],
)
def test_why_it_cannot_start_is_told(
    job: PretendedTraining, spec: dict[str, Any], condition: str, words: str
) -> None:
    job.apply(**spec)

    job.wait_for_condition(condition, SECONDS, words)
    if condition == "InvalidTemplate":
        assert job.pods() == []


def test_a_dying_shard_is_counted_and_told(job: PretendedTraining) -> None:
    dying = cluster_jobs.template("echo out of luck; exit 7")
    job.apply(parameterServer={"shards": 1, "template": dying})

    job.wait_until(lambda: job.status().get("restarts", {}).get("shard", 0) > 0, "it is counted")
    failure = job.status()["failures"][0]
    assert (failure["role"], failure["exitCode"]) == ("shard", 7)
    assert "out of luck" in failure["logTail"]


def test_a_replica_that_takes_too_much_memory_is_told(job: PretendedTraining) -> None:
    greedy = cluster_jobs.template(GREEDY)
    greedy["spec"]["containers"][0]["resources"]["limits"] = {"memory": MEMORY_LIMIT}
    job.apply(replicas={"count": 1, "template": greedy})

    job.wait_until(lambda: bool(job.status().get("failures")), "its death is told")
    failure = job.status()["failures"][0]
    assert (failure["role"], failure["reason"]) == ("replica", "OOMKilled")
    job.wait_until(lambda: job.status()["restarts"]["replica"] > 0, "it is started again")
    assert job.restarts("shard") == [0, 0]


def test_somebody_elses_object_is_not_touched(job: PretendedTraining) -> None:
    name = f"{job.name}-launch"
    job.kubectl.run("create", "configmap", name, "--from-literal=mine=yes")
    job.apply()

    job.wait_for_condition("NameConflict", SECONDS, name)
    assert job.kubectl.get("configmap", name)["data"] == {"mine": "yes"}
    job.kubectl.run("delete", "configmap", name)
    job.wait_for_phase("Running")


def test_a_quota_that_leaves_no_room_is_told(job: PretendedTraining) -> None:
    # For the pods of this test alone: they say that they are of no priority of their own.
    match = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-cluster-critical"]}
    job.kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none"},
            "spec": {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [match]}},
        }
    )
    critical = cluster_jobs.template("sleep 1000")
    critical["spec"]["priorityClassName"] = "system-cluster-critical"
    job.apply(replicas={"count": 1, "template": critical}, image=busybox.IMAGE)

    message = job.wait_for_condition("CannotStart", SECONDS, "exceeded quota")["message"]
    assert f"{job.name}-replica" in message
    job.kubectl.run("delete", "resourcequota", "none")
    job.wait_for_phase("Running")
