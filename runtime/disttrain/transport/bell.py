"""Ends a thread's wait from another thread: a descriptor that can be waited for beside sockets."""

import os
import threading
from contextlib import suppress


class Bell:
    """`ring` and `close` may be called from any thread, also again and after `close`."""

    def __init__(self) -> None:
        # Whoever rings must not write into what the number means after it was closed.
        self._lock = threading.Lock()
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """Readable from a ring until it is heard; -1 after `close`."""
        return self._descriptor

    def ring(self) -> None:
        """End the wait, or the next one if nobody waits."""
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def hear(self) -> None:
        """All rings until now have been noticed."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def close(self) -> None:
        """Nothing is to be ended any more."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
