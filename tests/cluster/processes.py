"""The cluster's own processes, remembered on disk so that any later process can stop them.

A process is known by its id and its start time: an id alone may belong to somebody else by now.
"""

import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

from cluster import layout
from cluster.commands import wait_until
from cluster.errors import ComponentDied

LOG_CHARACTERS = 3000
"""How much of the log of a component that died is worth showing: its end."""
DEAD_STATES = "ZX"


@dataclass(frozen=True, slots=True)
class Process:
    """A running program of the cluster, found again by id and start time."""

    name: str
    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat: clock ticks after boot."""

    @classmethod
    def start(
        cls, name: str, command: Sequence[str | Path], variables: Mapping[str, str] | None = None
    ) -> Self:
        """Start a component in a session of its own, logging to `logs()/NAME.log`."""
        line = [str(part) for part in command]
        # Not subprocess: its objects complain about processes that outlive them, as these may.
        pid = os.posix_spawnp(
            line[0],
            line,
            {**os.environ, **(variables or {})},
            file_actions=_redirections(log_of(name)),
            setsid=True,
        )
        process = cls(name, pid, _start_ticks(pid) or 0)
        _record_of(name).parent.mkdir(parents=True, exist_ok=True)
        _record_of(name).write_text(json.dumps(asdict(process)))
        return process

    @classmethod
    def load(cls, name: str) -> Self | None:
        """Return the process last started under this name, None if there was none."""
        try:
            return cls(**json.loads(_record_of(name).read_text()))
        except FileNotFoundError:
            return None

    def is_alive(self) -> bool:
        """Tell whether it runs, and reap it if it is our child and has ended."""
        runs = _start_ticks(self.pid) == self.start_ticks
        # After the look: one that was seen dead is then reaped for certain.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return runs

    def check(self) -> None:
        """Raise ComponentDied, with the end of the log, unless it runs."""
        if not self.is_alive():
            log = log_of(self.name)
            end = log.read_text(errors="replace")[-LOG_CHARACTERS:]
            message = f"{self.name} ended by itself; the end of {log}:\n{end}"
            raise ComponentDied(message)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self.is_alive():
            os.kill(self.pid, number)

    def stop(self, *, number: signal.Signals = signal.SIGKILL) -> None:
        """Send the signal and return when the process is gone."""
        self.send(number)
        gone_in = timedelta(seconds=60)
        wait_until(lambda: not self.is_alive(), f"{self.name} has ended", limit=gone_in)


def all_recorded() -> list[Process]:
    """Return every process that the cluster in the state folder ever started under its name."""
    records = sorted(_record_of("any").parent.glob("*.json"))
    found = (Process.load(record.stem) for record in records)
    return [process for process in found if process is not None]


def log_of(name: str) -> Path:
    """Return the log file of a component."""
    return layout.logs() / f"{name}.log"


def _record_of(name: str) -> Path:
    return layout.state() / "processes" / f"{name}.json"


def _redirections(log: Path) -> list[tuple[int, int, str, int, int] | tuple[int, int, int]]:
    log.parent.mkdir(parents=True, exist_ok=True)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]


def _start_ticks(pid: int) -> int | None:
    """Return when the process started, None if it is gone or only its exit code is left."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may hold anything: spaces and parentheses too.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in DEAD_STATES else int(fields[19])
