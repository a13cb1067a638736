"""Remove a cluster from the machine, whole or half, running or killed: from what is on the disk.

Nothing in here needs the process that started the cluster, so that the next run, or a person,
can clean up after one that was killed.
"""

import os
import shutil
import signal
from datetime import timedelta
from pathlib import Path

from cluster import cgroups, commands, layout, machine, network, processes
from cluster.errors import CommandFailed

RUNTIME_PROGRAMS = ("containerd-shim-runc-v2", "runc")
"""What containerd starts and leaves running without it."""
MOUNT_LIMIT = timedelta(seconds=20)


def remove() -> None:
    """Stop everything and remove every trace; nothing happens where there is no cluster."""
    if not layout.state().exists():
        return
    _kill(processes.all_recorded())
    _remove_pods(layout.state(), layout.NAME)
    unmount(layout.images())
    network.remove()
    machine.put_back()
    shutil.rmtree(layout.state())


def remove_node(node: layout.Node) -> None:
    """Stop what runs on a node, the pods too, and remove every trace of it on this machine."""
    _kill([process for process in processes.all_recorded() if process.name.endswith(node.name)])
    _remove_pods(node.folder, node.cgroup)
    unmount(node.images)
    shutil.rmtree(node.folder)


def found() -> list[str]:
    """Describe every trace of a cluster on this machine: processes, mounts, links, cgroups."""
    traces = [f"process {pid}" for pid in sorted(process_ids())]
    points = (*_mounts(layout.state()), *_mounts(layout.images()))
    traces += [f"mount {point}" for point in points]
    traces += [f"cgroup {folder}" for folder in cgroups.left()]
    if network.has_link():
        traces.append(f"interface {network.HOST_LINK}")
    if layout.state().exists():
        traces.append(f"folder {layout.state()}")
    return traces


def process_ids() -> set[int]:
    """Return every process of the cluster: components, shims, and what runs in containers."""
    return {*_runtime_processes(layout.state()), *_component_ids(), *cgroups.members(layout.NAME)}


def _remove_pods(folder: Path, cgroup: str) -> None:
    """Remove what containerd and the kubelet left, below a folder and a cgroup."""
    sockets = _shim_sockets(folder)
    commands.wait_until(lambda: _runtime_is_gone(folder), "containerd's shims have ended")
    cgroups.kill_members(cgroup)
    unmount(folder)
    cgroups.remove(cgroup)
    for socket in sockets:
        socket.unlink(missing_ok=True)


def _kill(components: list[processes.Process]) -> None:
    for component in components:
        component.send(signal.SIGKILL)
    for component in components:
        component.stop()


def _component_ids() -> list[int]:
    """Return processes that are in the network namespace of a cluster, by number."""
    try:
        ours = network.namespace().stat().st_ino
    except OSError:
        return []
    return [pid for pid in _process_ids() if _namespace_of(pid) == ours]


def _runtime_is_gone(folder: Path) -> bool:
    running = _runtime_processes(folder)
    for pid in running:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return not running


def _runtime_processes(folder: Path) -> list[int]:
    return [pid for pid in _process_ids() if _is_runtime(_command_of(pid), f"{folder}/")]


def _is_runtime(command: list[str], prefix: str) -> bool:
    if not command or Path(command[0]).name not in RUNTIME_PROGRAMS:
        return False
    return any(argument.startswith(prefix) for argument in command)


def _shim_sockets(folder: Path) -> list[Path]:
    """Return the sockets of shims: containerd keeps them outside of its own folders."""
    addresses = list(folder.glob("**/io.containerd.runtime.v2.task/*/*/address"))
    known = [address.read_text() for address in addresses if address.exists()]
    return [Path(text.removeprefix("unix://")) for text in known]


def _mounts(folder: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split()[1].replace("\\040", " ") for line in lines]
    return [point for point in points if Path(point).is_relative_to(folder)]


def unmount(folder: Path) -> None:
    """Unmount what is below a folder, the last mounted first."""
    for point in reversed(_mounts(folder)):
        try:
            commands.run("umount", point, limit=MOUNT_LIMIT)
        except CommandFailed:
            # A process of somebody else looks into it; the mount goes when they leave.
            commands.run("umount", "--lazy", point, limit=MOUNT_LIMIT)


def _process_ids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


def _namespace_of(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None
