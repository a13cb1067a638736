"""Ctrl-C, SIGTERM and a closed terminal, as something to wait for instead of an exception."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Counts the signals. For the main thread."""

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        """Readable when there is something to take."""

    def take(self) -> int:
        try:
            return len(os.read(self.descriptor, 16))
        except BlockingIOError:
            return 0

    def note(self, _number: int, _frame: FrameType | None) -> None:
        # A full pipe has been noticed already; sixteen Ctrl-C say no more than one.
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            return

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self._write)


@contextmanager
def caught() -> Iterator[Interrupts]:
    """Count the signals instead of ending the process; afterwards they do what they did before."""
    interrupts = Interrupts()
    before = {number: signal.signal(number, interrupts.note) for number in SIGNALS}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        interrupts.close()
