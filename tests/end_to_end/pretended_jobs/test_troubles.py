"""What a person is told of a job that cannot start, or whose processes die."""

import base64
import json
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


HOST_NETWORK = {"spec": {"hostNetwork": True}}
TOO_FEW_GROUPS = {
    "strategy": {"sandblaster": {"optimizer": {"lbfgs": {}}, "batchSize": 8, "portionSize": 8}},
    "batchSize": None,
    "stop": {"iterations": 1},
}
"""The schema knows no rule against it."""
NOTHING_IS_MADE = {"InvalidTemplate", "InvalidManifest", "NotSupported"}


@pytest.mark.parametrize(
    ("spec", "condition", "words"),
    [
        (replicas(nodeSelectr={"disk": "fast"}), "InvalidTemplate", "nodeSelectr"),
        (replicas(hostNetwork=True), "InvalidTemplate", "hostNetwork"),
        (
            replicas(hostNetwork=True) | {"coordinator": {"template": HOST_NETWORK}},
            "InvalidTemplate",
            "coordinator",
        ),
        (TOO_FEW_GROUPS, "InvalidManifest", "must make at least 3 groups"),
        ({"transport": "sharedMemory"}, "NotSupported", "pods share no memory"),
        (
            replicas(securityContext={"runAsNonRoot": False, "runAsUser": 0}),
            "InvalidTemplate",
            "runAsNonRoot must be true",
        ),
        ({"image": "test.disttrain.dev/nothing:1"}, "CannotStart", "nothing:1"),
        (replicas(nodeSelector={"disk": "fast"}), "CannotStart", "Unschedulable"),
    ],
    ids=[
        *("unknown field", "host network", "two roles", "invalid", "shared memory"),
        *("pod security", "no image", "no node"),
    ],
)
def test_why_it_cannot_start_is_told(
    job: PretendedTraining, spec: dict[str, Any], condition: str, words: str
) -> None:
    job.apply(**spec)

    job.wait_for_condition(condition, SECONDS, words)
    if condition in NOTHING_IS_MADE:
        assert job.leftovers() == []


def test_words_of_all_languages_reach_the_processes(job: PretendedTraining) -> None:
    words = {"größe": "訓練", "quotes": "'\"`$(id)`{{ }}\n\t", "emoji": "\N{ROCKET}"}
    job.start(task={"entrypoint": "digits:Digits", "arguments": words})

    (secret,) = [
        each
        for each in job.kubectl.items("secrets")
        if each["metadata"]["name"].startswith(f"{job.name}-trust-")
    ]
    launch = json.loads(base64.b64decode(secret["data"]["job.json"]))
    assert launch["spec"]["task"]["arguments"] == words


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

    def told() -> tuple[str, str]:
        first = (job.status().get("failures") or [{}])[0]
        return first.get("role", ""), first.get("reason", "")

    # That memory was short a kubelet may learn a moment after the death.
    job.wait_until(lambda: told() == ("replica", "OOMKilled"), "its death is told")
    job.wait_until(lambda: job.status()["restarts"]["replica"] > 0, "it is started again")
    assert set(job.restarts("shard")) == {0}


def test_somebody_elses_object_is_not_touched(job: PretendedTraining) -> None:
    name = f"{job.name}-coordinator"
    job.kubectl.run("create", "job", name, f"--image={busybox.IMAGE}", "--", "sleep", "1000")
    before = job.kubectl.get("job", name)["metadata"]["uid"]
    job.apply()

    job.wait_for_condition("NameConflict", SECONDS, name)
    assert job.kubectl.get("job", name)["metadata"]["uid"] == before
    job.wait_until(lambda: job.pods() == [], "nothing of it runs")
    job.kubectl.run("delete", "job", name)
    job.wait_for_phase("Running")


def test_a_quota_that_leaves_no_room_is_told(job: PretendedTraining) -> None:
    # For the pods of this test alone: nobody else has this priority.
    priority = f"of-{job.kubectl.namespace}"
    match = {"scopeName": "PriorityClass", "operator": "In", "values": [priority]}
    job.kubectl.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": priority},
            "value": 1,
        },
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none"},
            "spec": {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [match]}},
        },
    )
    # Before it is counted, pods are refused with other words.
    job.kubectl.wait_until("jsonpath={.status.hard.pods}=0", "resourcequota/none")
    limited = cluster_jobs.template("sleep 1000")
    limited["spec"]["priorityClassName"] = priority
    job.apply(replicas={"count": 1, "template": limited}, image=busybox.IMAGE)

    message = job.wait_for_condition("CannotStart", SECONDS, "exceeded quota")["message"]
    assert f"{job.name}-replica" in message
    job.kubectl.run("delete", "resourcequota", "none")
    job.wait_for_phase("Running")
    job.kubectl.run("delete", "priorityclass", priority)
