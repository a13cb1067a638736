"""What the first process of a container must do for others: signals and orphans.

The kernel gives orphans to process 1, which has to wait for them, and hands it no signal that it
does not handle.
"""

import os
import signal
import threading
import time
from collections.abc import Iterable, Set
from pathlib import Path

STOPPED = 128 + signal.SIGTERM
"""Exit code of a coordinator that was told to end; the job goes on with its next life."""

_REAP_SECONDS = 30.0


class Terminations:
    """Remembers SIGTERM, whoever handles it. Made by the main thread, before anybody does."""

    def __init__(self) -> None:
        self._read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def wait(self) -> None:
        """Return when SIGTERM has come, also if it came before. For the main thread."""
        # Handled, or else it would end this process instead of waking it.
        signal.signal(signal.SIGTERM, lambda *_: None)
        while signal.SIGTERM not in os.read(self._read, 4096):
            pass


def end_on_sigterm(code: int) -> None:
    """End at once with this exit code until somebody else handles SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(code))


def overdue(before: Set[int], now: Iterable[int]) -> set[int]:
    """Ended children that nobody has waited for since the last look: they are orphans. Pure."""
    return set(now) & before


def reap_orphans() -> None:
    """Wait for ended orphans in a thread, if this is the container's first process."""
    if os.getpid() == 1:
        threading.Thread(target=_reap, name="orphans", daemon=True).start()


def _reap() -> None:
    before: set[int] = set()
    while True:
        time.sleep(_REAP_SECONDS)
        ended = ended_children()
        for pid in overdue(before, ended):
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
        before = ended


def ended_children() -> set[int]:
    """Of this process, and not waited for."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state == "Z" and int(parent) == os.getpid():
            found.add(int(folder.name))
    return found
