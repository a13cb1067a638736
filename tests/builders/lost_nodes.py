"""Nodes that a test may lose, and pods that begin there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from builders.job_view import JobView
from cluster import Cluster
from cluster.layout import Node

LIMIT: Final = timedelta(seconds=280)
"""50 s until the node counts as lost, 30 s of patience with it, the pods' grace, 30 s more."""
TAINT: Final = "test.disttrain.dev/to-be-lost"
PODS: Final = 5


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


def tolerating(node: Node) -> dict[str, Any]:
    """What a pod's spec says to be allowed on this node."""
    return {"tolerations": [{"key": TAINT, "value": node.name, "effect": "NoSchedule"}]}


def places(job: JobView) -> set[str]:
    """Names of the nodes that the job's pods are on."""
    return {pod["spec"].get("nodeName", "") for pod in job.pods()}


def elsewhere(job: JobView, node: Node) -> Callable[[], bool]:
    """Return the question whether all pods run, none of them on the node."""

    def holds() -> bool:
        found = job.pods()
        running = [pod for pod in found if pod["status"]["phase"] == "Running"]
        there = [pod for pod in found if pod["spec"].get("nodeName") == node.name]
        return len(running) == PODS and not there

    return holds
