"""The cgroups that hold the nodes' pods, in every hierarchy of version 1 that is mounted."""

import errno
import os
import signal
from pathlib import Path

from cluster import commands, layout

ROOT = Path("/sys/fs/cgroup")
INHERITED = ("cpuset.cpus", "cpuset.mems")
"""A new cpuset is empty, and no process may join it until it is told what it has."""

SHARES_OF_PODS = 16 * 1024
"""All pods together weigh as much as one process of the machine otherwise, and get as little."""


def version() -> int:
    """Return the version of the cgroups that the controllers of this machine use."""
    return 2 if (ROOT / "cgroup.controllers").exists() else 1


def make(node: layout.Node) -> None:
    """Make a node's cgroup in every hierarchy: the kubelet wants to find it."""
    for hierarchy in _hierarchies():
        folder = hierarchy / node.cgroup
        folder.mkdir(parents=True, exist_ok=True)
        shares = hierarchy / layout.NAME / "cpu.shares"
        if shares.exists():
            shares.write_text(str(SHARES_OF_PODS))
        if hierarchy.name == "cpuset":
            _inherit(hierarchy / layout.NAME, hierarchy)
            _inherit(folder, hierarchy / layout.NAME)


def kill_members(name: str = layout.NAME) -> None:
    """Kill every process in a cgroup of ours, and return when they are gone."""
    for process_id in members(name):
        try:
            os.kill(process_id, signal.SIGKILL)
        except ProcessLookupError:
            continue
    commands.wait_until(lambda: not members(name), "the cluster's containers have ended")


def remove(name: str = layout.NAME) -> None:
    """Remove a cgroup of ours, which must hold no process any more."""
    for hierarchy in _hierarchies():
        top = hierarchy / name
        for folder, _, _ in os.walk(top, topdown=False):
            Path(folder).rmdir()


def left() -> list[str]:
    """Return the folders of our cgroups that exist."""
    return [str(top) for h in _hierarchies() if (top := h / layout.NAME).exists()]


def _hierarchies() -> list[Path]:
    if version() == 2:
        return [ROOT]
    # "unified" holds no controller and nothing of ours.
    skipped = {"unified"}
    found = (path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink())
    return sorted(path for path in found if path.name not in skipped)


def members(name: str) -> set[int]:
    """Return the processes in a cgroup of ours and below it."""
    found: set[int] = set()
    for hierarchy in _hierarchies():
        for folder, _, _ in os.walk(hierarchy / name):
            found |= _directly_in(Path(folder))
    return found


def _directly_in(folder: Path) -> set[int]:
    try:
        return {int(line) for line in (folder / "cgroup.procs").read_text().split()}
    except OSError as error:
        # Whoever made it has removed it, before it was opened or since.
        if error.errno in {errno.ENOENT, errno.ENODEV}:
            return set()
        raise


def _inherit(folder: Path, parent: Path) -> None:
    for name in INHERITED:
        (folder / name).write_text((parent / name).read_text())
