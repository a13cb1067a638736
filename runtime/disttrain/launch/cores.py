"""How many cores this process may use, in a container too."""

import math
import os
from collections.abc import Iterator
from pathlib import Path


def usable(root: Path = Path("/")) -> int:
    """The cores of this process's mask, or fewer by the quota of a control group; at least 1.

    Its own group and those above it count, as far as they are visible, in both versions of control
    groups. `root`: where `proc` and `sys` are mounted.
    """
    allowed = len(os.sched_getaffinity(0))
    quota = min(map(_quota, _groups(root)), default=math.inf)
    return max(1, math.ceil(min(allowed, quota)))


def _groups(root: Path) -> Iterator[Path]:
    for hierarchy, controllers, path in _memberships(root / "proc/self/cgroup"):
        if hierarchy != "0" and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("" if hierarchy == "0" else "cpu")
        own = Path(path.lstrip("/"))
        # A container may see the machine's path, but its own group alone, as the top.
        visible = ".." not in own.parts and (top / own).is_dir()
        yield from (top / each for each in ((own, *own.parents) if visible else (Path(),)))


def _memberships(file: Path) -> list[tuple[str, str, str]]:
    try:
        fields = [line.split(":", 2) for line in file.read_text().splitlines()]
    except OSError:
        return []
    return [(line[0], line[1], line[2]) for line in fields if len(line) == 3]


def _quota(group: Path) -> float:
    """Cores, or infinity: no quota ("max" in version 2, -1 in version 1), or nothing said."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = (int(w) for file in files for w in (group / file).read_text().split())
        except (OSError, ValueError):
            continue
        if quota > 0 and period > 0:
            return quota / period
    return math.inf
