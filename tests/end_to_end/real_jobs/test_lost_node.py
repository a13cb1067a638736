"""A node vanishes with all processes of a real job: it goes on elsewhere, from its volume."""

import pytest

from builders import lost_nodes, product_images
from builders.cluster_training import ClusterTraining, assert_every_sample_was_applied
from cluster import Cluster


@pytest.mark.alone
@pytest.mark.timeout(700, func_only=True)
def test_a_job_whose_node_is_lost_goes_on_elsewhere(
    own_cluster: Cluster, job: ClusterTraining
) -> None:
    with lost_nodes.second_node(own_cluster) as node:
        own_cluster.load_built(product_images.RUNTIME)
        job.apply(pods=lost_nodes.preferring(node))
        job.train()
        assert lost_nodes.places(job) == {node.name}

        own_cluster.lose_node(node)
        before = job.samples()
        job.wait_until(
            lambda: lost_nodes.is_elsewhere(job, node), "all pods run elsewhere", lost_nodes.LIMIT
        )
        summary = job.complete()
    assert summary["samples"] > before
    assert_every_sample_was_applied(job, summary)
