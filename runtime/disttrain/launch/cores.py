"""How many cores this process may use, in a container too."""

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable(quota_file: Path = _QUOTA) -> int:
    """The cores of this process's mask, or fewer if the container's quota is less; at least 1."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = quota_file.read_text().split()
        return max(1, min(allowed, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        # There is no quota ("max"), or no cgroup to have one.
        return allowed
