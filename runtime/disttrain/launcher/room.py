"""Whether the disk of a run has room. Only the launcher can say so: status and logs lie on it."""

import os
from pathlib import Path

LEAST_BYTES = 2**16
"""With less, some of the small files of a run can no longer be written."""


def is_short(folder: Path) -> bool:
    """Whether the disk of a folder is full, or so good as that."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < LEAST_BYTES
