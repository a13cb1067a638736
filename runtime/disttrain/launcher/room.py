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


class Room:
    """Whether a run lacks room: until something was saved again, whatever the disk looks like.

    What did not fit is removed, so that a disk may seem to have room right after it had none.
    """

    def __init__(self) -> None:
        self.is_lacking = False
        self._saved: int | None = None

    def look(self, *, is_short: bool, checkpoint: int | None) -> None:
        """`checkpoint`: the latest that was saved; None: not known."""
        is_saved = checkpoint is not None and checkpoint != self._saved
        if is_short or is_saved:
            self.is_lacking = is_short
        self._saved = self._saved if checkpoint is None else checkpoint
