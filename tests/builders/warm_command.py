"""`disttrain` as a command whose imports are made already: half of a small job's time.

One process per test process imports what the command, shards and replicas import, torch with it,
and forks for each command. The command's first fork server is forked beside it, before it has
threads; what starts later, and the coordinator, are programs of their own as always.
"""

import functools
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from disttrain.cli import main as command_line
from disttrain.cli.table import COMMANDS
from disttrain.launch import linux, process
from disttrain.launcher import fork_server, hosts

_PRELOADED = [
    __name__,
    "pytest",
    *(f"disttrain.cli.{place.split(':')[0]}" for _, place, _ in COMMANDS),
    "disttrain.launcher.launcher",
    "disttrain.launcher.coordinator_link",
    "disttrain.parameter_server.server",
    "disttrain.replica.server",
]
_FORK_SERVER = "disttrain.launcher.fork_server"


class WarmCommand:
    """As much of `subprocess.Popen` as tests ask for."""

    def __init__(self, arguments: Sequence[str], printed: Path) -> None:
        self._process: ForkServerProcess = context().Process(
            target=_run, args=(list(arguments), printed, Path.cwd(), dict(os.environ))
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("disttrain", timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@functools.cache
def context() -> ForkServerContext:
    """Forks a process that has imported PyTorch, with the memory of a launcher's processes."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(_PRELOADED)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in hosts.FORK_ENVIRONMENT.items():
            patch.setenv(name, value)
        forkserver.ensure_running()
    return found


def _run(arguments: list[str], printed: Path, folder: Path, environment: dict[str, str]) -> None:
    """In the forked process: be the command."""
    # What was forked by a fork server would start all its processes by one.
    multiprocessing.set_start_method(None, force=True)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    fork_server.redirect(printed)
    hosts._run = _first_warm(_Spare(), hosts._run)
    sys.argv = ["disttrain", *arguments]
    process.end(command_line.main())


class _Spare:
    """A fork server to be, forked from a process of one thread: waits to be told its socket.

    To the launcher it is a `subprocess.Popen`.
    """

    def __init__(self) -> None:
        self.returncode: int | None = None
        self._told, told = socket.socketpair()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._told.close()
            _become_fork_server(told, parent)
        told.close()

    def start(self, descriptor: int, log: Path) -> None:
        socket.send_fds(self._told, [os.fsencode(log)], [descriptor])
        self._told.close()

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> None:
        if self.returncode is not None:
            return
        pidfd = os.pidfd_open(self.pid)
        ended, _, _ = select.select([pidfd], [], [], timeout)
        os.close(pidfd)
        if not ended:
            raise subprocess.TimeoutExpired(_FORK_SERVER, timeout or 0.0)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)


def _become_fork_server(told: socket.socket, parent: int) -> None:
    linux.end_with_parent(parent, signal.SIGKILL)
    log, descriptors, _, _ = socket.recv_fds(told, 4096, 1)
    told.close()
    if not log:
        os._exit(0)
    os.setsid()
    fork_server.redirect(Path(os.fsdecode(log)))
    sys.argv = [_FORK_SERVER, str(descriptors[0]), str(parent)]
    fork_server.main()


def _first_warm(spare: _Spare, cold: Any) -> Any:
    left = [spare]

    def run(module: str, argument: str, *, log: Path, **more: Any) -> Any:
        if module != _FORK_SERVER or not left:
            return cold(module, argument, log=log, **more)
        left[0].start(int(argument), log)
        return left.pop()

    return run
