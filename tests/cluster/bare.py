"""A control plane without nodes: API server, controllers and scheduler, for benchmarks."""

import shutil
from pathlib import Path
from typing import Self

from cluster import (
    binaries,
    certificates,
    control_plane,
    kubeconfigs,
    layout,
    leftovers,
    network,
    prerequisites,
    processes,
)
from cluster.cluster import LOCK_LIMIT
from cluster.control_plane import AS_SHIPPED, Limits, Nodes
from cluster.errors import Unavailable
from cluster.kubectl import Kubectl
from cluster.lock import Lock

_LAST_WORDS = 1000
"""Characters."""


class ControlPlane:
    """Instead of a cluster, with its lock and its addresses. Use as a context manager."""

    def __init__(self, limits: Limits = AS_SHIPPED) -> None:
        self._limits = limits
        self._lock: Lock | None = None

    def __enter__(self) -> Self:
        prerequisites.check()
        self._lock = Lock.acquire(LOCK_LIMIT)
        try:
            if layout.state().exists():
                message = f"a cluster was left at {layout.state()}: python -m cluster down"
                raise Unavailable(message)
            binaries.build_missing()
            network.check_free()
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if layout.state().exists() and _is_ours():
            for process in processes.all_recorded():
                process.stop()
            network.remove()
            leftovers.unmount(layout.state())
            shutil.rmtree(layout.state())
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def kubectl(self) -> Kubectl:
        """kubectl as the administrator."""
        return control_plane.administrator()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return layout.kubeconfig("admin")

    def cpu_seconds(self) -> dict[str, float]:
        """What the components used until now, by name."""
        return {process.name: _cpu_seconds(process.pid) for process in processes.all_recorded()}

    def last_words(self) -> str:
        """The ends of the components' logs."""
        ends = ((each.name, processes.log_of(each.name)) for each in processes.all_recorded())
        return "\n".join(f"{name}: {log.read_text()[-_LAST_WORDS:]}" for name, log in ends)

    def _start(self) -> None:
        layout.state().mkdir()
        _mark().touch()
        network.make()
        certificates.make_authority()
        kubeconfigs.make("admin", "administrator")
        control_plane.start(self._limits, Nodes.PRETENDED)


def _mark() -> Path:
    return layout.state() / "without-nodes"


def _is_ours() -> bool:
    return _mark().exists()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
