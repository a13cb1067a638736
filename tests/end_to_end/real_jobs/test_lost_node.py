"""Nodes vanish, one with all processes of a real job: both jobs go on elsewhere.

No audit: it wants training to move again within a minute, and the cluster takes two or three to
give a node up.
"""

import copy
from typing import Any

import pytest

from builders import cluster_jobs, lost_nodes, product_images
from builders.cluster_training import ClusterTraining
from builders.job_view import Status
from builders.pretended_training import PretendedTraining
from cluster import Cluster, Kubectl, images
from cluster.layout import Node

pytestmark = pytest.mark.landing

GRACE_SECONDS = 10
ON_ALL_NODES = {"volume": {"size": "1Mi", "accessModes": ["ReadWriteMany"]}}


@pytest.mark.alone
@pytest.mark.timeout(1200, func_only=True)
def test_jobs_whose_nodes_are_lost_go_on_elsewhere(
    own_cluster: Cluster, namespace: Kubectl, job: ClusterTraining
) -> None:
    pretended = PretendedTraining(namespace, "pretended")
    with lost_nodes.one_more_node(own_cluster) as dark:
        own_cluster.load(images.archive(product_images.RUNTIME), product_images.RUNTIME)
        with lost_nodes.one_more_node(own_cluster) as silent:
            # Nobody is left who could use the time to end.
            quickly = {"terminationGracePeriodSeconds": GRACE_SECONDS}
            # A node takes minutes to be given up: one epoch is enough to go on with.
            one_epoch = {"epochs": 1}
            with lost_nodes.no_other_node(own_cluster):
                there = {**lost_nodes.tolerating(dark), **quickly}
                job.apply(pods=there, stop=one_epoch, checkpoint=ON_ALL_NODES)
                pretended.apply(**tolerating(silent), checkpoint=ON_ALL_NODES)
                pretended.wait_for_phase("Running")
                job.train()
            before, former = job.samples(), pretended.uids()
            assert lost_nodes.places(job) == {dark.name}
            assert lost_nodes.places(pretended) == {silent.name}
            # They train on with the keys that they have; no other node has a copy.
            secrets = f"--selector=app.kubernetes.io/instance={pretended.name}"
            pretended.kubectl.run("delete", "secrets", secrets)

            own_cluster.lose_node(dark)
            # Its pods run on, and nobody hears of them.
            own_cluster.kill_kubelet(silent)
            for each, node in ((job, dark), (pretended, silent)):
                gone = lost_nodes.elsewhere(each, node)
                each.wait_until(gone, "all pods run elsewhere", lost_nodes.LIMIT)

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
        spec[part]["template"]["spec"] |= lost_nodes.tolerating(node)
    return {part: spec[part] for part in parts}
