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

    What did not fit is removed, so that a disk may seem to have room right after it had none. And
    the coordinator may tell only then of a checkpoint that was saved before: the one after the
    latest that is known proves nothing, nor does it matter, since a full disk takes its number.
    """

    def __init__(self) -> None:
        self.is_lacking = False
        self._known = -1

    def look(self, *, is_short: bool, checkpoint: int | None) -> None:
        """`checkpoint`: the number of the latest that was saved; None: not known."""
        told = self._known if checkpoint is None else checkpoint
        if is_short:
            self.is_lacking = True
        elif self.is_lacking and told > self._known + 1:
            self.is_lacking = False
        if is_short or not self.is_lacking:
            self._known = told
