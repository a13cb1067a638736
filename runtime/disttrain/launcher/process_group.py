"""Ending a process together with everything that it started."""

import os
import signal
from contextlib import suppress


def kill(leader: int) -> None:
    """SIGKILL for a process and its group; stopped ones die, too. Does nothing when none is left.

    Only for a child of this process that has not been waited for: its id is nobody else's.
    """
    # A child that was killed before it had a group of its own is no leader yet.
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            send(leader, signal.SIGKILL)
