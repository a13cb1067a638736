"""Who may start and stop the cluster, or give it images: one process of this machine at a time.

The kernel lets go of the lock when its holder dies, however it dies.
"""

import fcntl
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

from cluster import layout
from cluster.commands import wait_until
from cluster.errors import NotInTime, Unavailable


@dataclass(frozen=True, slots=True)
class Lock:
    """The lock, held."""

    descriptor: int

    @classmethod
    def acquire(cls, limit: timedelta, file: Path | None = None) -> Self:
        """Return once the lock is ours; raise Unavailable, naming the holder, if it never is.

        Without a file it is the lock of the cluster as a whole.
        """
        place = file or layout.lock_file()
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            wait_until(lambda: _try(descriptor), f"the lock {place} is free", limit=limit)
        except NotInTime as error:
            holder = os.read(descriptor, 20).decode() or "somebody"
            os.close(descriptor)
            message = f"process {holder} has the test cluster of this machine (lock {place})"
            raise Unavailable(message) from error
        os.truncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        return cls(descriptor)

    def release(self) -> None:
        """Let the next one have it."""
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
