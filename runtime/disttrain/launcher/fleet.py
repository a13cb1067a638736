"""All processes of a job on this machine: one place to start, watch and kill them."""

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

from disttrain.job import names
from disttrain.job.names import Role
from disttrain.launch import linux
from disttrain.launch.run_folder import RunFolder
from disttrain.launcher.fork_messages import Ended, Event, Preload, Preloaded, Started
from disttrain.launcher.hangs import Owing
from disttrain.launcher.hosts import ExecHost, ForkHost
from disttrain.telemetry import logs

LOG = logs.get(__name__)

FORK_SERVER = "fork-server"
"""Name of its log."""
LONG_IMPORT_SECONDS = 60.0
"""After which the user is told what the job waits for."""


class Fleet:
    """The coordinator runs as a program, shards and replicas are forked by a fork server.

    Replicas wait until the fork server has imported the user's module, whose imports often take as
    long as torch's, and what else each of them would import. A module that starts threads makes the
    server unfit for forking; then a second one without it forks what comes, and each replica
    imports the module itself. So it is with a module that ends the server or keeps it for ever: the
    replicas meet that, too, and their ends are theirs, not everybody's.
    """

    def __init__(self, folder: RunFolder, module: Preload) -> None:
        self._folder = folder
        self._module: Preload | None = module
        self._programs = ExecHost()
        self._forks: list[ForkHost] = []
        self._preload_asked = False
        self._preloaded = False
        self._tell_of_import_at = math.inf

    def can_start(self, name: str) -> bool:
        role = names.parse(name).role
        return role is not Role.REPLICA or (self._preloaded and self._has_fork_server())

    def start(self, name: str) -> None:
        role = names.parse(name).role
        is_program = role is Role.COORDINATOR
        host: ExecHost | ForkHost = self._programs if is_program else self._fork_server()
        host.start(name, self._folder.config(name), self._folder.log(name))

    def prepare_replicas(self) -> None:
        """Have the user's module imported, after the start of the shards; may be called again."""
        server = self._fork_server()
        if self._module is None:
            self._preloaded = True
        elif not self._preload_asked:
            server.preload(self._module)
            self._preload_asked = True
            self._tell_of_import_at = time.monotonic() + LONG_IMPORT_SECONDS

    def descriptors(self) -> list[int]:
        """What to wait for: readable when `events` has something to tell."""
        return [descriptor for host in self._hosts() for descriptor in host.descriptors()]

    def events(self) -> Iterator[Started | Ended | str]:
        """Starts and ends of processes since the last call, and what the user should know.

        Waits for nothing.
        """
        for host in self._hosts():
            for event in host.events():
                if told := self._handled(event):
                    yield told
        for host in self._forks:
            if not host.alive and (module := self._importing()):
                yield self._without(module, host)
        self._forks = [host for host in self._forks if host.alive]
        if (module := self._importing()) and time.monotonic() >= self._tell_of_import_at:
            self._tell_of_import_at = math.inf
            words = f"importing '{module.module}' has not returned for {LONG_IMPORT_SECONDS:.0f} s"
            yield f"{words}: no replica starts before it has"

    def owing(self) -> list[Owing]:
        return [
            Owing(FORK_SERVER, host.pid, "owes an answer", patience_seconds)
            for host in self._forks
            if (patience_seconds := host.patience_seconds()) is not None
        ]

    def kill(self, pid: int, how: signal.Signals = signal.SIGKILL) -> None:
        """End a process that was started here and has not ended; `events` tells of its end."""
        # Whoever waits for it ends the rest of its group.
        with suppress(ProcessLookupError):
            os.kill(pid, how)

    def close(self) -> None:
        for host in self._hosts():
            host.close()
        linux.kill_children()

    def _hosts(self) -> list[ExecHost | ForkHost]:
        return [self._programs, *self._forks]

    def _has_fork_server(self) -> bool:
        return bool(self._forks) and self._forks[-1].alive

    def _fork_server(self) -> ForkHost:
        if not self._has_fork_server():
            self._forks.append(ForkHost(self._folder.log(FORK_SERVER)))
            self._preload_asked = False
            self._preloaded = False
        return self._forks[-1]

    def _importing(self) -> Preload | None:
        return self._module if self._preload_asked and not self._preloaded else None

    def _without(self, module: Preload, server: ForkHost) -> str:
        """Have each replica import the module itself, since it has ended the server."""
        self._module = None
        log = self._folder.log(FORK_SERVER)
        how = f"ended the process that imports it for all ({server.exit})"
        return f"importing '{module.module}' {how}: each replica imports it; see {log}"

    def _handled(self, event: Event) -> Started | Ended | None:
        match event:
            case Started() | Ended():
                return event
            case Preloaded(threads=1, error=error):
                if error:
                    LOG.warning("the task's module raises: replicas import it", error=error)
                self._preloaded = True
            case Preloaded(threads=threads):
                LOG.warning("the task's module starts threads: replicas import it", threads=threads)
                self._module = None
                self._forks.append(ForkHost(self._folder.log(FORK_SERVER)))
                self._preloaded = True
            case _:
                LOG.info("fork server ready", threads=event.threads)
        return None
