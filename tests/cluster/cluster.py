"""The cluster as a whole: started and stopped, grown by a node, and broken on purpose."""

import os
import shutil
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster import (
    binaries,
    busybox,
    certificates,
    cgroups,
    containerd,
    control_plane,
    debian,
    images,
    kubeconfigs,
    kubelet,
    layout,
    leftovers,
    machine,
    network,
    prerequisites,
    services,
    volumes,
)
from cluster.errors import Unavailable
from cluster.kubectl import Kubectl
from cluster.lock import Lock
from cluster.processes import Process

LOCK_LIMIT = timedelta(minutes=5)
"""How long to wait for somebody else's cluster on this machine to end."""


class Cluster:
    """The one cluster of this machine. Use as a context manager, or `start` and `stop`.

    Its processes do not depend on the one that started it: what `leave_running` leaves is found
    again by `attach`. Not for use by several threads.
    """

    def __init__(self) -> None:
        self._lock: Lock | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @classmethod
    def attach(cls) -> Self:
        """Return the cluster that was left running; raise Unavailable if there is none."""
        if not _left_running_mark().exists():
            message = "no cluster was left running; `python -m cluster up` starts one"
            raise Unavailable(message)
        return cls()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return layout.kubeconfig("admin")

    @property
    def kubectl(self) -> Kubectl:
        """kubectl as the administrator."""
        return control_plane.administrator()

    @property
    def nodes(self) -> list[layout.Node]:
        """The nodes, the first one first."""
        names = (path.name for path in layout.state().glob("node-*"))
        return [layout.Node(n) for n in sorted(int(name.removeprefix("node-")) for name in names)]

    def start(self, say: Callable[[str], None] | None = None) -> None:
        """Start the control plane and a first node; builds and installs what is missing.

        Raises Unavailable where no cluster can run, and when one was left running here.
        """
        prerequisites.check()
        self._lock = Lock.acquire(LOCK_LIMIT)
        try:
            _refuse_second()
            debian.install_missing()
            binaries.build_missing(say)
            leftovers.remove()
            network.check_free()
            self._start_all()
        except BaseException:
            self._release()
            raise

    def stop(self) -> None:
        """Stop everything and leave nothing behind."""
        if self._lock is None:
            self._lock = Lock.acquire(LOCK_LIMIT)
        try:
            leftovers.remove()
        finally:
            self._release()

    def leave_running(self) -> None:
        """Let the cluster go on when this process ends, until somebody stops it."""
        _left_running_mark().touch()
        self._release()

    def add_node(self) -> layout.Node:
        """Start one more node, with the images of the first; returns when it is Ready."""
        node = layout.Node(self.nodes[-1].number + 1)
        network.add_address(node)
        self._start_node(node)
        containerd.copy_images(self.nodes[0], node)
        kubelet.wait_until_serving(node)
        return node

    def keep_logs(self, folder: Path) -> None:
        """Copy the components' logs, to be read when the cluster is gone."""
        shutil.copytree(layout.logs(), folder, dirs_exist_ok=True)

    def load(self, archive: Path) -> None:
        """Give every node the images of an OCI or Docker archive."""
        for node in self.nodes:
            containerd.import_archive(node, archive)

    def load_built(self, tag: str) -> None:
        """Give every node an image that `images` built, unless it has exactly that one."""
        for node in self.nodes:
            if f"sha256:{images.identity(tag)}" not in containerd.images(node):
                containerd.import_output(node, images.save_command(tag))

    def stop_api_server(self) -> None:
        """Stop the API server, and nothing else, until `start_api_server`."""
        control_plane.stop_api_server()

    def start_api_server(self) -> None:
        """Start the API server again; returns when it is ready."""
        control_plane.start_api_server()
        control_plane.wait_for_api_server()

    def kill_kubelet(self, node: layout.Node) -> None:
        """Kill a node's kubelet: to the cluster the node is lost, its containers run on."""
        running = Process.load(kubelet.name(node))
        if running is not None:
            running.stop(number=signal.SIGKILL)

    def start_kubelet(self, node: layout.Node) -> None:
        """Start a node's kubelet again; returns when the node is Ready."""
        kubelet.start(node)
        kubelet.wait_until_serving(node)

    def kill_container(self, kubectl: Kubectl, pod: str) -> None:
        """Kill the first process of a pod's first container with SIGKILL, as no one expects."""
        found = kubectl.get("pod", pod)
        identity = found["status"]["containerStatuses"][0]["containerID"]
        node = next(node for node in self.nodes if node.name == found["spec"]["nodeName"])
        container_id = identity.removeprefix("containerd://")
        os.kill(containerd.process_id(node, container_id), signal.SIGKILL)

    def remove_node(self, node: layout.Node) -> None:
        """Remove a node that was added, its pods and its every trace."""
        leftovers.remove_node(node)
        network.remove_address(node)
        self.kubectl.run("delete", "node", node.name)
        for namespace, pod in self._pods_of(node):
            now = ("--force", "--grace-period=0", "--ignore-not-found")
            self.kubectl.within(namespace).run("delete", "pod", pod, *now)

    def _pods_of(self, node: layout.Node) -> list[tuple[str, str]]:
        which = ("--all-namespaces", f"--field-selector=spec.nodeName={node.name}")
        names = "jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{'\\n'}{end}"
        lines = self.kubectl.run("get", "pods", *which, "-o", names).splitlines()
        return [(words[0], words[1]) for line in lines if (words := line.split())]

    def _start_all(self) -> None:
        layout.state().mkdir()
        machine.note()
        first = layout.Node(1)
        network.make()
        certificates.make_authority()
        kubeconfigs.make("admin", "administrator")
        control_plane.start()
        services.start()
        self._start_node(first)
        volumes.make_class(self.kubectl)
        kubelet.wait_until_serving(first)
        services.wait_for_dns()

    def _start_node(self, node: layout.Node) -> None:
        cgroups.make(node)
        containerd.start(node, busybox.IMAGE)
        archive = node.folder / "busybox.tar"
        busybox.write_archive(archive)
        containerd.import_archive(node, archive)
        archive.unlink()
        kubelet.start(node)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _refuse_second() -> None:
    if _left_running_mark().exists():
        message = (
            f"a cluster was left running here: use it (--cluster=existing with "
            f"KUBECONFIG={layout.kubeconfig('admin')}) or stop it (python -m cluster down)"
        )
        raise Unavailable(message)


def _left_running_mark() -> Path:
    return layout.state() / "left-running"
