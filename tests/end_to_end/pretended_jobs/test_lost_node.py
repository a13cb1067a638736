"""A node vanishes with all pods of a job: they are made again elsewhere."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from builders import cluster_jobs
from builders.pretended_training import PretendedTraining
from cluster import Cluster
from cluster.layout import Node

LIMIT = timedelta(seconds=280)
"""50 s until the node counts as lost, 30 s of patience with it, the pods' grace, 30 s more."""
TAINT = "test.disttrain.dev/to-be-lost"


@pytest.fixture
def node(own_cluster: Cluster) -> Iterator[Node]:
    """A second node, for those who ask for it."""
    added = own_cluster.add_node()
    try:
        own_cluster.kubectl.run("taint", "node", added.name, f"{TAINT}=yes:NoSchedule")
        yield added
    finally:
        own_cluster.remove_node(added)


@pytest.mark.timeout(500, func_only=True)
def test_the_pods_of_a_lost_node_are_made_again_elsewhere(
    own_cluster: Cluster, node: Node, job: PretendedTraining
) -> None:
    job.apply(**preferring(node))
    job.wait_for_phase("Running")
    assert nodes_of(job) == {node.name}
    before = job.uids()

    own_cluster.kill_kubelet(node)
    job.wait_until(lambda: is_elsewhere(job, node), "all pods run elsewhere", LIMIT)

    assert not job.uids() & before
    assert [job.restarts(role) for role in ("shard", "replica")] == [[0, 0], [0, 0]]
    job.wait_for_phase("Running")
    job.finish()
    job.wait_for_condition("Complete")


def preferring(node: Node) -> dict[str, Any]:
    """A spec whose pods go to this node as long as it is there."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    preference = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    rule = "preferredDuringSchedulingIgnoredDuringExecution"
    wanted = {
        "affinity": {"nodeAffinity": {rule: [preference]}},
        "tolerations": [{"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}],
    }
    spec: dict[str, Any] = json.loads(json.dumps(cluster_jobs.pretending("any")["spec"]))
    for part in ("coordinator", "parameterServer", "replicas"):
        spec[part]["template"]["spec"] |= wanted
    return {part: spec[part] for part in ("coordinator", "parameterServer", "replicas")}


def nodes_of(job: PretendedTraining) -> set[str]:
    """Where the pods are."""
    return {pod["spec"].get("nodeName", "") for pod in job.pods()}


def is_elsewhere(job: PretendedTraining, node: Node) -> bool:
    """Whether all five run, none of them on the node."""
    found = job.pods()
    running = [pod for pod in found if pod["status"]["phase"] == "Running"]
    there = [pod for pod in found if pod["spec"].get("nodeName") == node.name]
    return len(running) == 5 and not there
