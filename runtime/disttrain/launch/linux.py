"""What Linux offers and Python does not: the end of a parent, groups, names of files, quotas."""

import ctypes
import math
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

_LIBC = ctypes.CDLL(None, use_errno=True)


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Have the kernel send `number` to this process when its parent `parent` ends.

    Ends the process at once when the parent has ended already: then the kernel would never do it.
    It watches the thread of the parent that made this process.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(128 + number)


def wake_when_parent_ends() -> None:
    """Have the kernel continue this process, should it be stopped, when its parent ends.

    For a process that has something left to do then and notices the end by itself. Takes the place
    of `end_with_parent`, which may be called again.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parents end, so that none gets lost."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """The process ids of this process's children, adopted ones too."""
    threads = Path("/proc/self/task").iterdir()
    texts = ((thread / "children").read_text() for thread in threads)
    return [int(pid) for text in texts for pid in text.split()]


def kill_children() -> None:
    """Kill this process's children, and whom it adopts by that, until none is left."""
    while found := children():
        for pid in found:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def used_ticks(pid: int) -> int:
    """Processor time of a process and of the children it has waited for; 0 if it is gone."""
    return sum(int(ticks) for ticks in stat(pid)[11:15])


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or has ended and its parent has not asked how."""
    return stat(pid)[:1] in ([], ["Z"], ["X"])


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty if the process is gone."""
    try:
        # The name, in brackets, may have spaces.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def set_process_name(name: str) -> None:
    """The name that ps and top show; its first 15 bytes."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _LIBC.prctl(_PR_SET_NAME, buffer, 0, 0, 0)


def exchange(one: Path, other: Path) -> None:
    """Give each of two files the other's name, in one step. Raises OSError."""
    paths = os.fsencode(one), os.fsencode(other)
    if _LIBC.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def kill_group(leader: int) -> None:
    """SIGKILL for a process and its group; stopped ones die, too. Does nothing when none is left.

    Only for a child of this process that has not been waited for: its id is nobody else's.
    """
    # A child that was killed before it had a group of its own is no leader yet.
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            send(leader, signal.SIGKILL)


def usable_cores(root: Path = Path("/")) -> int:
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
