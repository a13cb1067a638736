"""What the operator makes of replicas of several processes, and what a person does to them."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from builders import cluster_jobs
from builders.pretended_training import PretendedTraining
from cluster import Kubectl

REPLICAS = {
    "count": 2,
    "partitions": 3,
    "template": cluster_jobs.template(cluster_jobs.PRETEND_MEMBER),
}

SHARDS = {"shards": 3, "template": cluster_jobs.template(cluster_jobs.PRETEND_MEMBER)}


GPU = "tests.disttrain.dev/gpu"
"""A device that no node has unless a test says so."""
SECONDS = timedelta(seconds=120)


@pytest.fixture
def give_gpus(shared_namespace: Kubectl) -> Iterator[Callable[[int], None]]:
    """Lets one node have so many."""
    node = shared_namespace.items("nodes")[0]["metadata"]["name"]
    # The kubelet makes the second of the first, after a while.
    paths = [f"/status/{name}/{GPU.replace('/', '~1')}" for name in ("capacity", "allocatable")]

    def patch(**change: str) -> None:
        text = json.dumps([{"path": path, **change} for path in paths])
        shared_namespace.run(
            "patch", f"node/{node}", "--subresource=status", "--type=json", "-p", text
        )

    yield lambda number: patch(op="add", value=str(number))
    patch(op="remove")


def start(job: PretendedTraining) -> None:
    job.start(replicas=REPLICAS, parameterServer=SHARDS)
    job.wait_until(lambda: job.status().get("readyReplicas") == 2, "whole replicas are ready")


def sets(job: PretendedTraining) -> dict[str, str]:
    """The StatefulSets of the job's replicas, by name, with their uids."""
    selector = f"app.kubernetes.io/instance={job.name},disttrain.dev/replica-index"
    found = job.kubectl.items("statefulsets", selector)
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}


def named(job: PretendedTraining, *indices: int) -> set[str]:
    return {f"{job.name}-replica-{index}" for index in indices}


def pods(job: PretendedTraining) -> set[str]:
    return {pod["metadata"]["name"] for pod in job.pods("replica")}


def pods_of(job: PretendedTraining, *indices: int) -> set[str]:
    return {f"{name}-{process}" for name in named(job, *indices) for process in range(3)}


def test_each_process_knows_its_place_and_whoever_counts_counts_replicas(
    job: PretendedTraining,
) -> None:
    start(job)

    assert set(sets(job)) == named(job, 0, 1)
    assert pods(job) == pods_of(job, 0, 1)
    said = job.kubectl.run("exec", f"{job.name}-replica-1-2", "--", "env").splitlines()
    assert {"DISTTRAIN_INDEX=1", "DISTTRAIN_PARTITION=2"} <= set(said)
    scale = job.kubectl.run("get", job.resource, "--subresource=scale", "-o", "json")
    assert '"replicas": 2' in scale
    selected = job.kubectl.items("pods", job.status()["selector"])
    assert {pod["metadata"]["name"] for pod in selected} == {
        f"{name}-0" for name in named(job, 0, 1)
    }


def test_a_scaled_job_gets_and_loses_whole_replicas(job: PretendedTraining) -> None:
    start(job)
    before = job.uids()

    job.kubectl.run("scale", job.resource, "--replicas=3")
    job.wait_until(lambda: job.status().get("readyReplicas") == 3, "a third one is ready")
    assert pods(job) == pods_of(job, 0, 1, 2)
    assert before < job.uids()

    job.kubectl.run("scale", job.resource, "--replicas=1")
    job.wait_until(lambda: pods(job) == pods_of(job, 0), "two of them are gone")
    assert set(sets(job)) == named(job, 0)
    assert job.uids() < before
    job.wait_until(lambda: job.status().get("replicas") == 1, "the status counts one")
    assert "Scaled" in job.events()


def test_a_set_that_somebody_deletes_or_scales_is_what_it_was(job: PretendedTraining) -> None:
    start(job)
    name = f"{job.name}-replica-0"
    before, ours = sets(job), job.uids()

    job.kubectl.run("delete", f"statefulset/{name}", "--wait=false")
    job.wait_until(lambda: sets(job).get(name) not in {None, before[name]}, "it is made again")
    job.wait_until(lambda: pods(job) == pods_of(job, 0, 1), "its processes are there")
    job.wait_until(lambda: len(ours - job.uids()) == 3, "the pods of before are gone")

    job.kubectl.run("scale", f"statefulset/{name}", "--replicas=1")
    job.wait_until(
        lambda: job.kubectl.get("statefulset", name)["spec"]["replicas"] == 3, "3 processes"
    )
    job.wait_until(lambda: job.status().get("readyReplicas") == 2, "both are whole")


def test_it_rests_goes_on_and_goes(job: PretendedTraining) -> None:
    start(job)
    job.patch(suspend=True)
    job.wait_for_phase("Suspended")
    job.wait_until(lambda: job.pods() == [], "no pod is left")
    assert set(sets(job)) == named(job, 0, 1)

    job.patch(suspend=False, replicas={"count": 1})
    job.wait_until(lambda: pods(job) == pods_of(job, 0), "it goes on with one replica")
    job.finish()
    job.wait_for_condition("Complete")
    job.wait_until(lambda: pods(job) == set(), "they are gone")

    job.delete()
    job.wait_until(lambda: job.leftovers() == [], "nothing is left, no policy either")


def test_a_set_of_somebody_else_is_left_alone(
    job: PretendedTraining, shared_namespace: Kubectl
) -> None:
    name = f"{job.name}-replica-1"
    labels = {"app": "another"}
    container = {"name": "own", "image": "test.disttrain.dev/nothing:1"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "serviceName": "x", "selector": {"matchLabels": labels}, "template": pod}
    header = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}}
    shared_namespace.apply({**header, "spec": spec})

    job.apply(replicas=REPLICAS, parameterServer=SHARDS)

    assert name in job.wait_for_condition("NameConflict")["message"]
    job.wait_until(lambda: job.pods() == [], "what was made before it was seen is taken back")
    assert shared_namespace.get("statefulset", name)["spec"]["selector"]["matchLabels"] == labels
    shared_namespace.run("delete", f"statefulset/{name}")
    job.wait_until(lambda: job.status().get("readyReplicas") == 2, "then it begins")


def test_each_process_has_a_gpu_of_its_own_and_who_lacks_one_is_told(
    job: PretendedTraining, give_gpus: Callable[[int], None]
) -> None:
    give_gpus(3)
    template = cluster_jobs.template(cluster_jobs.PRETEND_MEMBER)
    template["spec"]["containers"][0]["resources"]["limits"] = {GPU: 1}
    job.apply(replicas={"count": 2, "partitions": 2, "template": template})

    def placed() -> int:
        return sum(bool(pod["spec"].get("nodeName")) for pod in job.pods("replica"))

    job.wait_until(lambda: placed() == 3, "three processes have a node")
    job.wait_for_condition("CannotStart", SECONDS, f"Insufficient {GPU}")
    assert placed() == 3

    give_gpus(4)
    job.wait_until(lambda: job.status().get("readyReplicas") == 2, "both replicas are whole")
