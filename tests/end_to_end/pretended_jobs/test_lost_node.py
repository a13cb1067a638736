"""A node vanishes with all pods of a job: they are made again elsewhere."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from builders import cluster_jobs, lost_nodes
from builders.pretended_training import PretendedTraining
from cluster import Cluster
from cluster.layout import Node


@pytest.fixture
def node(own_cluster: Cluster) -> Iterator[Node]:
    with lost_nodes.second_node(own_cluster) as added:
        yield added


@pytest.mark.alone
@pytest.mark.timeout(500, func_only=True)
def test_the_pods_of_a_lost_node_are_made_again_elsewhere(
    own_cluster: Cluster, node: Node, job: PretendedTraining
) -> None:
    job.apply(**preferring(node))
    job.wait_for_phase("Running")
    assert lost_nodes.places(job) == {node.name}
    before = job.uids()

    own_cluster.kill_kubelet(node)
    job.wait_until(
        lambda: lost_nodes.is_elsewhere(job, node), "all pods run elsewhere", lost_nodes.LIMIT
    )

    assert not job.uids() & before
    assert [job.restarts(role) for role in ("shard", "replica")] == [[0, 0], [0, 0]]
    job.wait_for_phase("Running")
    job.finish()
    job.wait_for_condition("Complete")


def preferring(node: Node) -> dict[str, Any]:
    """A job's spec whose pods want to be on this node."""
    spec = copy.deepcopy(cluster_jobs.pretending("any")["spec"])
    parts = ("coordinator", "parameterServer", "replicas")
    for part in parts:
        spec[part]["template"]["spec"] |= lost_nodes.preferring(node)
    return {part: spec[part] for part in parts}
