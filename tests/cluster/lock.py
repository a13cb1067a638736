"""Who may start and stop the cluster: one process of this machine at a time.

The kernel lets go of the lock when its holder dies, however it dies.
"""

import fcntl
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from cluster import layout
from cluster.commands import wait_until
from cluster.errors import NotInTime, Unavailable


@dataclass(frozen=True, slots=True)
class Lock:
    """The lock, held."""

    descriptor: int

    @classmethod
    def acquire(cls, limit: timedelta) -> Self:
        """Return once the lock is ours; raise Unavailable, naming the holder, if it never is."""
        descriptor = os.open(layout.lock_file(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            wait_until(lambda: _try(descriptor), "the cluster's lock is free", limit=limit)
        except NotInTime as error:
            holder = os.read(descriptor, 20).decode() or "somebody"
            os.close(descriptor)
            message = f"process {holder} runs the test cluster of this machine"
            raise Unavailable(message) from error
        os.truncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        return cls(descriptor)

    def release(self) -> None:
        """Let the next one have it."""
        os.close(self.descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
