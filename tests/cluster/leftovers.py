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
    _kill_components()
    sockets = _shim_sockets()
    commands.wait_until(_runtime_is_gone, "containerd's shims have ended")
    cgroups.kill_members()
    _unmount()
    network.remove()
    cgroups.remove()
    for socket in sockets:
        socket.unlink(missing_ok=True)
    machine.put_back()
    shutil.rmtree(layout.state())


def found() -> list[str]:
    """Describe every trace of a cluster on this machine: processes, mounts, links, cgroups."""
    traces = [f"process {pid}" for pid in (*_runtime_processes(), *_component_ids())]
    traces += [f"mount {point}" for point in _mounts()]
    traces += [f"cgroup {folder}" for folder in cgroups.left()]
    if Path(f"/sys/class/net/{network.HOST_LINK}").exists():
        traces.append(f"interface {network.HOST_LINK}")
    if layout.state().exists():
        traces.append(f"folder {layout.state()}")
    return traces


def _kill_components() -> None:
    components = processes.all_recorded()
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


def _runtime_is_gone() -> bool:
    running = _runtime_processes()
    for pid in running:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return not running


def _runtime_processes() -> list[int]:
    state = str(layout.state())
    return [pid for pid in _process_ids() if _is_runtime(_command_of(pid), state)]


def _is_runtime(command: list[str], state: str) -> bool:
    if not command or Path(command[0]).name not in RUNTIME_PROGRAMS:
        return False
    return any(argument.startswith(state) for argument in command)


def _shim_sockets() -> list[Path]:
    """Return the sockets of shims: containerd keeps them outside of its own folders."""
    bundles = layout.state().glob("node-*/containerd-state/io.containerd.runtime.v2.task/*/*")
    addresses = [bundle / "address" for bundle in bundles]
    known = [address.read_text() for address in addresses if address.exists()]
    return [Path(text.removeprefix("unix://")) for text in known]


def _mounts() -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split()[1].replace("\\040", " ") for line in lines]
    return [point for point in points if Path(point).is_relative_to(layout.state())]


def _unmount() -> None:
    """Unmount what is below the state folder, the deepest first."""
    for point in reversed(_mounts()):
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
