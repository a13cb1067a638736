"""What the first process of a container must do for others: signals and orphans.

The kernel gives orphans to process 1, which has to wait for them, and hands it no signal that it
does not handle.

Not tini: it would wait for orphans, which is half of this. The exit codes of the roles and a
SIGTERM that came before its handler would stay, and who stops or kills the first process of a
container would no longer meet the role.
"""

import os
import select
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from disttrain.launch import linux

STOPPED = 128 + signal.SIGTERM
"""Exit code of a coordinator that was told to end; the job goes on with its next incarnation."""

_REAP_SECONDS = 30.0


class Terminations:
    """Remembers SIGTERM, whoever handles it. Made by the main thread, before anybody does."""

    def __init__(self) -> None:
        self._read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._has_come = False

    def wait(self) -> None:
        """Return when SIGTERM has come, also if it came before. For the main thread."""
        # Handled, or else it would end this process instead of waking it.
        signal.signal(signal.SIGTERM, lambda *_: None)
        while not self._has_come:
            self._take()

    def has_come(self) -> bool:
        """Whether SIGTERM has come until now, to somebody who handles it."""
        while select.select([self._read], [], [], 0)[0]:
            self._take()
        return self._has_come

    def _take(self) -> None:
        self._has_come |= signal.SIGTERM in os.read(self._read, 4096)


def end_on_sigterm(code: int) -> None:
    """End at once with this exit code until somebody else handles SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(code))


def reap_orphans() -> None:
    """Wait for ended orphans in a thread, if this is the container's first process."""
    if os.getpid() == 1:
        threading.Thread(target=_reap, name="orphans", daemon=True).start()


def _reap() -> None:
    seen: set[int] = set()
    while True:
        time.sleep(_REAP_SECONDS)
        seen = reap(seen)


def reap(seen: set[int]) -> set[int]:
    """Wait for the ended children that were seen at the last look: nobody else does.

    Returns those that are seen at this one.
    """
    ended = ended_children()
    for pid in seen & ended:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return ended


def ended_children() -> set[int]:
    """Of this process, and not waited for."""
    pids = (int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
    ended_here = ["Z", str(os.getpid())]
    return {pid for pid in pids if linux.stat(pid)[:2] == ended_here}
