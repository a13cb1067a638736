"""Nodes vanish, one with all processes of a real job: both jobs go on elsewhere.

No audit: it wants training to move again within a minute, and the cluster takes two or three to
give a node up.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest

from builders import cluster_jobs, product_images
from builders.cluster_training import ClusterTraining
from builders.job_view import JobView, Status
from builders.pretended_training import PretendedTraining
from cluster import Cluster, Kubectl, images
from cluster.layout import Node

pytestmark = pytest.mark.landing

LIMIT: Final = timedelta(seconds=280)
"""50 s until the node counts as lost, 30 s of patience with it, the pods' grace, 30 s more."""
TAINT: Final = "test.disttrain.dev/to-be-lost"
PODS: Final = 5
GRACE_SECONDS = 10
ON_ALL_NODES = {"volume": {"size": "1Mi", "accessModes": ["ReadWriteMany"]}}


@contextmanager
def one_more_node(cluster: Cluster) -> Iterator[Node]:
    """A node for those who ask for it."""
    added = cluster.add_node()
    try:
        cluster.kubectl.run("taint", "node", added.name, f"{TAINT}={added.name}:NoSchedule")
        yield added
    finally:
        cluster.remove_node(added)


@contextmanager
def no_other_node(cluster: Cluster) -> Iterator[None]:
    """Meanwhile a pod starts on the node that it tolerates, or waits for it."""
    first = cluster.nodes[0].name
    cluster.kubectl.run("cordon", first)
    try:
        yield
    finally:
        cluster.kubectl.run("uncordon", first)


def toleration(node: Node) -> dict[str, Any]:
    """What a pod's spec says to be allowed on this node."""
    return {"tolerations": [{"key": TAINT, "value": node.name, "effect": "NoSchedule"}]}


def places(job: JobView) -> set[str]:
    """Names of the nodes that the job's pods are on."""
    return {pod["spec"].get("nodeName", "") for pod in job.pods()}


def are_elsewhere(job: JobView, node: Node) -> bool:
    """Whether all pods run, none of them on the node."""
    found = job.pods()
    running = [pod for pod in found if pod["status"]["phase"] == "Running"]
    there = [pod for pod in found if pod["spec"].get("nodeName") == node.name]
    return len(running) == PODS and not there


@pytest.mark.alone
@pytest.mark.timeout(1200, func_only=True)
def test_jobs_whose_nodes_are_lost_go_on_elsewhere(
    own_cluster: Cluster, namespace: Kubectl, job: ClusterTraining
) -> None:
    pretended = PretendedTraining(namespace, "pretended")
    with one_more_node(own_cluster) as dark:
        own_cluster.load(images.archive(product_images.RUNTIME), product_images.RUNTIME)
        with one_more_node(own_cluster) as silent:
            # Nobody is left who could use the time to end.
            quickly = {"terminationGracePeriodSeconds": GRACE_SECONDS}
            # A node takes minutes to be given up: one epoch is enough to go on with.
            one_epoch = {"epochs": 1}
            with no_other_node(own_cluster):
                there = {**toleration(dark), **quickly}
                job.apply(pods=there, stop=one_epoch, checkpoint=ON_ALL_NODES)
                pretended.apply(**tolerating(silent), checkpoint=ON_ALL_NODES)
                pretended.wait_for_phase("Running")
                job.train()
            before, former = job.samples(), pretended.uids()
            assert places(job) == {dark.name}
            assert places(pretended) == {silent.name}
            # They train on with the keys that they have; no other node has a copy.
            secrets = f"--selector=app.kubernetes.io/instance={pretended.name}"
            pretended.kubectl.run("delete", "secrets", secrets)

            own_cluster.lose_node(dark)
            # Its pods run on, and nobody hears of them.
            own_cluster.kill_kubelet(silent)
            for each, node in ((job, dark), (pretended, silent)):
                gone = partial(are_elsewhere, each, node)
                each.wait_until(gone, "all pods run elsewhere", LIMIT)

            own_cluster.start_kubelet(silent)
            assert_pods_are_new(pretended, former)
            summary = job.end()
    assert_losses_are_told(job, summary, before)


def assert_pods_are_new(job: PretendedTraining, former: set[str]) -> None:
    """Those of a node that came back are gone, and the job goes on to its end."""
    assert not job.uids() & former
    assert [job.restarts(role) for role in ("shard", "replica")] == [[0, 0], [0, 0]]
    job.wait_for_phase("Running")
    job.finish()
    job.wait_for_condition("Complete")


def assert_losses_are_told(job: ClusterTraining, summary: Status, before: int) -> None:
    assert summary["samples"] > before
    assert summary["updatesLost"] == sum(summary["updatesLostBySender"].values())
    # An element of the first shard counts that shard's updates; what it lost is told.
    applied = int(job.trained()["first_updates"][0])
    assert applied + summary["updatesLost"] >= summary["steps"]


def tolerating(node: Node) -> dict[str, Any]:
    """A pretending job's spec whose pods may be on this node."""
    spec = copy.deepcopy(cluster_jobs.pretending("any")["spec"])
    parts = ("coordinator", "parameterServer", "replicas")
    for part in parts:
        spec[part]["template"]["spec"] |= toleration(node)
    return {part: spec[part] for part in parts}
