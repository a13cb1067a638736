"""The nodes: a containerd and a kubelet each, on one machine and one network."""

import os
import signal
from pathlib import Path

from cluster import busybox, cgroups, containerd, ctr, kubelet, layout, leftovers, network
from cluster.kubectl import Kubectl

NAMES_OF_PODS = "jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{'\\n'}{end}"


def existing() -> list[layout.Node]:
    """Return the nodes, the first one first."""
    names = (path.name for path in layout.state().glob("node-*"))
    return [layout.Node(n) for n in sorted(int(name.removeprefix("node-")) for name in names)]


def start(node: layout.Node) -> None:
    """Start a node; it becomes Ready a little later."""
    cgroups.make(node)
    containerd.start(node, busybox.IMAGE)
    archive = node.folder / "busybox.tar"
    busybox.write_archive(archive)
    ctr.import_archive(node, archive)
    archive.unlink()
    kubelet.start(node)


def add() -> layout.Node:
    """Start one more node; returns when it is Ready."""
    before = existing()
    node = layout.Node(before[-1].number + 1)
    network.add_address(node)
    start(node)
    kubelet.wait_until_serving(node)
    return node


def remove(kubectl: Kubectl, node: layout.Node) -> None:
    """Remove a node that was added, its pods and every trace of it."""
    leftovers.remove_node(node)
    network.remove_address(node)
    kubectl.run("delete", "node", node.name)
    which = ("--all-namespaces", f"--field-selector=spec.nodeName={node.name}")
    for line in kubectl.run("get", "pods", *which, "-o", NAMES_OF_PODS).splitlines():
        namespace, pod = line.split()
        # Nobody is left who would confirm that it ended.
        now = ("--force", "--grace-period=0", "--ignore-not-found")
        kubectl.within(namespace).run("delete", "pod", pod, *now)


def load(archive: Path, name: str) -> None:
    """Give every node the image in a Docker archive, unless it has exactly that one."""
    identity = ctr.configuration_in(archive)
    for node in existing():
        if ctr.configuration(node, name) != identity:
            ctr.import_archive(node, archive)


def kill_container(
    kubectl: Kubectl, pod: str, container: str, number: signal.Signals = signal.SIGKILL
) -> None:
    """Send a signal to the first process of a container of a pod."""
    found = kubectl.get("pod", pod)
    statuses = found["status"]["containerStatuses"]
    identity = next(each["containerID"] for each in statuses if each["name"] == container)
    node = next(node for node in existing() if node.name == found["spec"]["nodeName"])
    container_id = identity.removeprefix("containerd://")
    os.kill(ctr.process_id(node, container_id), number)
