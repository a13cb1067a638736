"""A node vanishes with all processes of a real job: it goes on elsewhere, from its volume.

No audit: it wants training to move again within a minute, and the cluster takes two or three to
give a node up.
"""

import pytest

from builders import lost_nodes, product_images
from builders.cluster_training import ClusterTraining
from cluster import Cluster

GRACE_SECONDS = 10


@pytest.mark.alone
@pytest.mark.timeout(700, func_only=True)
def test_a_job_whose_node_is_lost_goes_on_elsewhere(
    own_cluster: Cluster, job: ClusterTraining
) -> None:
    with lost_nodes.second_node(own_cluster) as node:
        own_cluster.load_built(product_images.RUNTIME)
        # Nobody is left who could use the time to end.
        quickly = {"terminationGracePeriodSeconds": GRACE_SECONDS}
        job.apply(pods={**lost_nodes.preferring(node), **quickly})
        job.train()
        assert lost_nodes.places(job) == {node.name}

        own_cluster.lose_node(node)
        before = job.samples()
        job.wait_until(
            lambda: lost_nodes.is_elsewhere(job, node), "all pods run elsewhere", lost_nodes.LIMIT
        )
        summary = job.end()
    assert summary["samples"] > before
    assert summary["updatesLost"] == sum(summary["updatesLostBySender"].values())
    # An element of the first shard counts that shard's updates; what it lost is told.
    applied = int(job.trained()["first_updates"][0])
    assert applied + summary["updatesLost"] >= summary["steps"]
