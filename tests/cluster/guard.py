"""A process that outlives a killed run and removes its cluster: processes, mounts, networks.

It shares the lock of the run that it guards, so that the next one starts when all is removed.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cluster import leftovers
from cluster.lock import Lock

_STOP_SECONDS = 30
_DISMISSED = b"."


@dataclass(frozen=True, slots=True)
class Guard:
    """The process, as seen by the run that it guards."""

    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, lock: Lock) -> Self:
        """Start one, which does nothing as long as this process lives."""
        command = [sys.executable, "-c", "from cluster import guard; guard.main()"]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            # A signal for the run's whole group, as of Ctrl-C, is not for it.
            start_new_session=True,
            pass_fds=(lock.descriptor,),
            cwd=Path(__file__).parents[1],
        )
        return cls(process)

    def dismiss(self) -> None:
        """Have it end and remove nothing."""
        self.process.communicate(_DISMISSED, timeout=_STOP_SECONDS)


def main() -> None:
    """Wait until the run has dismissed us, or is dead: the kernel closes its end of the pipe."""
    if not sys.stdin.buffer.read(len(_DISMISSED)):
        leftovers.remove()
