"""`disttrain` and pods whose imports are made already: half of a small job's time.

One process per test process imports what the command and the roles import, torch with it, and
forks for each of them. A command's first coordinator and its first fork server are forked beside
it, before it has threads; what starts later are programs of their own as always.
"""

import functools
import json
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch.multiprocessing

from disttrain.cli import main as command_line
from disttrain.cli.table import COMMANDS
from disttrain.launch import linux, pod, process
from disttrain.launcher import fork_server, hosts, plan
from disttrain.telemetry import logs

_PRELOADED = [
    __name__,
    "pytest",
    *(f"disttrain.cli.{place.split(':')[0]}" for _, place, _ in COMMANDS),
    "disttrain.launcher.launcher",
    "disttrain.launcher.coordinator_link",
    pod.PROCESS,
    "disttrain.coordinator.process.server",
    "disttrain.parameter_server.server",
    "disttrain.replica.server",
    plan.COMPILER,
]
_WARM = {
    "disttrain.launch.process": process.main,
    "disttrain.launcher.fork_server": fork_server.main,
}


class WarmProcess:
    """As much of `subprocess.Popen` as tests ask for."""

    def __init__(
        self,
        main: Callable[..., NoReturn],
        *arguments: object,
        environment: Mapping[str, str],
        folder: Path | None = None,
    ) -> None:
        self._process: ForkServerProcess = context().Process(
            target=_run, args=(main, arguments, folder or Path.cwd(), dict(environment))
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


class WarmCommand(WarmProcess):
    """`disttrain` with these arguments, and what it reads. It prints to a file, errors perhaps to
    another one."""

    def __init__(
        self,
        arguments: Sequence[str],
        printed: Path,
        *,
        errors: Path | None = None,
        reads: bytes = b"",
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            _be_command,
            list(arguments),
            printed,
            errors or printed,
            reads,
            environment=os.environ | dict(environment or {}),
            folder=folder,
        )


class WarmPod(WarmProcess):
    """The process of a pod, which its environment tells everything."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        super().__init__(_be_pod, log, environment=environment)


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


def together(work: Callable[..., None], arguments: tuple[object, ...], processes: int) -> None:
    """Run `work(rank, *arguments)` in so many processes at once. Raises what one of them raises."""
    context()
    torch.multiprocessing.start_processes(  # type: ignore[attr-defined, no-untyped-call]
        work, arguments, nprocs=processes, start_method="forkserver"
    )


def _run(
    main: Callable[..., NoReturn],
    arguments: Sequence[object],
    folder: Path,
    environment: Mapping[str, str],
) -> NoReturn:
    """In the forked process: be a program."""
    # What was forked by a fork server would start all its processes by one.
    multiprocessing.set_start_method(None, force=True)
    os.environ.clear()
    os.environ.update(environment)
    # Where temporary files go was looked up by an import.
    tempfile.tempdir = None
    os.chdir(folder)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    main(*arguments)


def _be_pod(log: Path) -> NoReturn:
    os.setsid()
    fork_server.redirect(log)
    pod.main()
    message = "the process of a pod ends by itself"
    raise AssertionError(message)


def _be_command(arguments: list[str], printed: Path, errors: Path, reads: bytes) -> NoReturn:
    fork_server.redirect(printed)
    with os.fdopen(logs.open_to_append(errors), "ab", buffering=0) as target:
        os.dup2(target.fileno(), 2)
    source, to_read = os.pipe()
    # A pipe takes so few bytes at once.
    os.write(to_read, reads)
    os.close(to_read)
    os.dup2(source, 0)
    os.close(source)
    # multiprocessing has closed the other one.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    hosts._run = _first_warm({module: _Spare(module) for module in _WARM}, hosts._run)
    sys.argv = ["disttrain", *arguments]
    process.end(command_line.main())


class _Spare:
    """A program to be, forked from a process of one thread: waits to be told its argument.

    To the launcher it is a `subprocess.Popen`.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self.returncode: int | None = None
        self._told, told = socket.socketpair()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._told.close()
            _become(module, told, parent)
        told.close()

    def start(self, argument: str, log: Path, inherited: Sequence[int]) -> None:
        message = json.dumps([argument, str(log)]).encode()
        socket.send_fds(self._told, [message], inherited)
        self._told.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> None:
        if self.returncode is not None:
            return
        pidfd = os.pidfd_open(self.pid)
        ended, _, _ = select.select([pidfd], [], [], timeout)
        os.close(pidfd)
        if not ended:
            raise subprocess.TimeoutExpired(self.module, timeout or 0.0)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)


def _become(module: str, told: socket.socket, parent: int) -> None:
    linux.end_with_parent(parent, signal.SIGKILL)
    message, inherited, _, _ = socket.recv_fds(told, 65536, 1)
    told.close()
    if not message:
        os._exit(0)
    argument, log = json.loads(message)
    os.setsid()
    fork_server.redirect(Path(log))
    # A descriptor that is the argument has another number here.
    sys.argv = [module, *map(str, inherited or [argument]), str(parent)]
    try:
        _WARM[module]()
    except SystemExit as end:
        process.end(int(end.code or 0))


def _first_warm(spares: dict[str, _Spare], cold: Any) -> Any:
    def run(
        module: str, argument: str, *, log: Path, inherited: Sequence[int] = (), **more: Any
    ) -> Any:
        if spare := spares.pop(module, None):
            spare.start(argument, log, inherited)
            return spare
        return cold(module, argument, log=log, inherited=inherited, **more)

    return run
