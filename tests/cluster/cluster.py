"""The cluster as a whole: started and stopped, grown by a node, and broken on purpose."""

import shutil
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Self

from cluster import (
    binaries,
    certificates,
    cgroups,
    control_plane,
    ctr,
    debian,
    kubeconfigs,
    kubelet,
    layout,
    leftovers,
    machine,
    network,
    nodes,
    prerequisites,
    processes,
    provisioner,
    services,
    volumes,
)
from cluster.control_plane import AS_SHIPPED, Limits
from cluster.errors import Unavailable
from cluster.guard import Guard
from cluster.kubectl import Kubectl
from cluster.lock import Lock
from cluster.processes import Process

LOCK_LIMIT = timedelta(minutes=5)
"""How long to wait for somebody else's cluster on this machine to end."""


class Cluster:
    """The one cluster of this machine. Use as a context manager, or `start` and `stop`.

    It goes when the process that started it ends, however that ends, unless `leave_running` leaves
    it: then it is found again by `attach`. Not for use by several threads.
    """

    def __init__(self, limits: Limits = AS_SHIPPED) -> None:
        self._limits = limits
        self._lock: Lock | None = None
        self._guard: Guard | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @classmethod
    def attach(cls) -> Self:
        """Return the cluster that was left running; raise Unavailable if there is none."""
        if not cls().is_left_running():
            message = "no cluster was left running; `python -m cluster up` starts one"
            raise Unavailable(message)
        return cls()

    @classmethod
    def running(cls) -> Self:
        """Return the cluster that runs, whoever stops it; raise Unavailable if there is none."""
        if not any(process.is_alive() for process in processes.all_recorded()):
            message = "no cluster runs; `python -m cluster up` starts one"
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
        return nodes.existing()

    def start(self, say: Callable[[str], None] | None = None) -> None:
        """Start the control plane and a first node; builds and installs what is missing.

        Raises Unavailable where no cluster can run, and when one was left running here.
        """
        prerequisites.check()
        self._lock = self._lock or Lock.acquire(LOCK_LIMIT)
        try:
            self._refuse_second()
            debian.install_missing()
            binaries.build_missing(say)
            leftovers.remove()
            network.check_free()
            self._guard = self._guard or Guard.start(self._lock)
            self._start_all_or_nothing()
        except BaseException:
            self._release()
            raise

    def stop(self) -> None:
        """Stop everything and leave nothing behind."""
        self._lock = self._lock or Lock.acquire(LOCK_LIMIT)
        try:
            leftovers.remove()
        finally:
            self._release()

    def is_left_running(self) -> bool:
        """Tell whether the cluster is one that outlives the process that started it."""
        alive = any(process.is_alive() for process in processes.all_recorded())
        return alive and _left_running_mark().exists()

    def leave_running(self) -> None:
        """Let the cluster go on when this process ends, until somebody stops it."""
        _left_running_mark().touch()
        self._release()

    def add_node(self) -> layout.Node:
        """Start one more node; returns when it is Ready. It has the small image alone."""
        return nodes.add()

    def copy_images(self, node: layout.Node) -> None:
        """Give a node every image of the first one: gigabytes take minutes."""
        ctr.copy_images(self.nodes[0], node)

    def keep_logs(self, folder: Path) -> None:
        """Copy the components' logs, to be read when the cluster is gone."""
        if layout.logs().exists():
            shutil.copytree(layout.logs(), folder, dirs_exist_ok=True)

    def load(self, archive: Path, name: str) -> None:
        """Give every node the image in a Docker archive, unless it has exactly that one."""
        nodes.load(archive, name)

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

    def lose_node(self, node: layout.Node) -> None:
        """Kill a node's kubelet and every process of its pods, as a loss of power does."""
        self.kill_kubelet(node)
        cgroups.kill_members(node.cgroup)

    def start_kubelet(self, node: layout.Node) -> None:
        """Start a node's kubelet again; returns when the node is Ready."""
        kubelet.start(node)
        kubelet.wait_until_serving(node)

    def kill_container(self, namespace: str, pod: str, container: str) -> None:
        """Kill the first process of a container of a pod with SIGKILL, as no one expects."""
        nodes.kill_container(self.kubectl.within(namespace), pod, container)

    def stop_container(self, namespace: str, pod: str, container: str) -> None:
        """Stop the first process of a container of a pod for ever: it lives and does nothing."""
        nodes.kill_container(self.kubectl.within(namespace), pod, container, signal.SIGSTOP)

    def remove_node(self, node: layout.Node) -> None:
        """Remove a node that was added, its pods and every trace of it."""
        nodes.remove(self.kubectl, node)

    def _start_all_or_nothing(self) -> None:
        try:
            self._start_all()
        except BaseException:
            self.keep_logs(layout.failed_logs())
            leftovers.remove()
            raise

    def _start_all(self) -> None:
        layout.state().mkdir()
        machine.note()
        first = layout.Node(1)
        network.make()
        certificates.make_authority()
        kubeconfigs.make("admin", "administrator")
        control_plane.start(self._limits)
        services.start()
        nodes.start(first)
        volumes.make_class(self.kubectl)
        provisioner.start()
        kubelet.wait_until_serving(first)
        services.wait_for_dns()

    def _refuse_second(self) -> None:
        if self.is_left_running():
            message = (
                f"a cluster was left running here: use it (--cluster=existing with "
                f"KUBECONFIG={self.kubeconfig}) or stop it (python -m cluster down)"
            )
            raise Unavailable(message)

    def _release(self) -> None:
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _left_running_mark() -> Path:
    return layout.state() / "left-running"
