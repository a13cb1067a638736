"""The launcher's side of the processes: who starts them and tells of their ends.

Two ways: `ExecHost` runs a program of its own (the coordinator), `ForkHost` talks to a fork server
(shards and replicas). Both are watched through file descriptors, and both end with the launcher.
"""

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from disttrain.launch import linux
from disttrain.launcher import fork_messages, hangs
from disttrain.launcher.fork_messages import Ended, Event, Preload, Preloaded, Ready, Start, Started
from disttrain.launcher.restart_policy import Exit
from disttrain.telemetry import logs
from disttrain.transport.malloc import MALLOC_ENVIRONMENT

# One thread until a role says otherwise: a pool of threads made by an import would not survive a
# fork, and would make the server unfit for forking.
FORK_ENVIRONMENT = MALLOC_ENVIRONMENT | {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

_END_SECONDS = 0.2
"""Between the end of a process's socket and its own."""


class Outbox:
    """Keeps what the socket does not take yet, in order.

    A fork server that still imports torch reads nothing, and its socket holds some 200 packets.
    """

    def __init__(self, connection: socket.socket) -> None:
        """`connection` keeps packets apart and does not block."""
        self._connection = connection
        self._waiting: deque[bytes] = deque()

    def put(self, packet: bytes) -> None:
        """Send the packet, at once or with a later `flush`."""
        self._waiting.append(packet)
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now. What a reader that is gone never got is dropped."""
        while self._waiting:
            try:
                self._connection.send(self._waiting[0])
            except BlockingIOError:
                return
            except ConnectionError:
                self._waiting.clear()
                return
            self._waiting.popleft()


@dataclass(frozen=True, slots=True)
class _Program:
    name: str
    process: subprocess.Popen[bytes]
    pidfd: int


class ExecHost:
    """Runs roles as programs; they start without torch."""

    def __init__(self) -> None:
        self._programs: dict[int, _Program] = {}
        self._started: list[Started] = []

    def start(self, name: str, config: Path, log: Path) -> None:
        """Start a process that runs the role in `config`."""
        process = _run("disttrain.launch.process", str(config), log=log)
        self._programs[process.pid] = _Program(name, process, os.pidfd_open(process.pid))
        self._started.append(Started(name=name, pid=process.pid))

    def descriptors(self) -> Sequence[int]:
        """What to wait for: readable when `events` has something to tell."""
        return [program.pidfd for program in self._programs.values()]

    def events(self) -> Iterator[Event]:
        """What has happened; waits for nothing."""
        started, self._started = self._started, []
        yield from started
        for program in list(self._programs.values()):
            if program.process.poll() is not None:
                yield self._forget(program)

    def kill(self, pid: int, how: signal.Signals) -> None:
        """Signal a process that was started here; `events` tells of its end."""
        self._programs[pid].process.send_signal(how)

    def close(self) -> None:
        for program in list(self._programs.values()):
            program.process.kill()
            program.process.wait()
            self._forget(program)

    def _forget(self, program: _Program) -> Ended:
        os.close(program.pidfd)
        del self._programs[program.process.pid]
        code = program.process.returncode
        return Ended(name=program.name, pid=program.process.pid, code=code)


class ForkHost:
    """One fork server and the processes that it forked."""

    def __init__(self, log: Path) -> None:
        self._socket, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(0)
        self._outbox = Outbox(self._socket)
        with server:
            descriptor = server.fileno()
            self._server = _run(
                "disttrain.launcher.fork_server",
                str(descriptor),
                log=log,
                environment=FORK_ENVIRONMENT,
                inherited=(descriptor,),
            )
        self._names: dict[int, str] = {}
        self._asked: set[str] = set()
        self._is_importing = True
        """Its own modules at first, then the user's."""
        self.alive = True

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def exit(self) -> Exit | None:
        """How the server ended; None before that."""
        code = self._server.returncode
        return None if code is None else Exit(code)

    def patience_seconds(self) -> float | None:
        """For how long the server may do nothing before it answers; None: it owes no answer.

        Looks at each process that it forked.
        """
        if not self.alive:
            return None
        if self._is_importing:
            return hangs.IMPORT_SECONDS
        owes = self._asked or any(linux.has_ended(pid) for pid in self._names)
        return hangs.ANSWER_SECONDS if owes else None

    def start(self, name: str, config: Path, log: Path) -> None:
        """Have a process forked; at once or as soon as the server has imported everything."""
        self._asked.add(name)
        self._send(Start(name=name, config=str(config), log=str(log)))

    def preload(self, preload: Preload) -> None:
        self._is_importing = True
        self._send(preload)

    def descriptors(self) -> Sequence[int]:
        """The socket of the server, which also tells of its end."""
        return [self._socket.fileno()] if self.alive else []

    def events(self) -> Iterator[Event]:
        """What the server told; when it has ended, the end of every process it had."""
        if self.alive:
            self._outbox.flush()
        while self.alive:
            try:
                packet = self._socket.recv(fork_messages.LARGEST_BYTES)
            except BlockingIOError:
                return
            except ConnectionError:
                packet = b""
            if packet:
                yield self._noted(fork_messages.EVENTS.validate_json(packet))
            else:
                self._let_end()
                yield from self._ended()

    def close(self) -> None:
        for _ in self._ended():
            pass

    def _noted(self, event: Event) -> Event:
        if isinstance(event, Started):
            self._names[event.pid] = event.name
            self._asked.discard(event.name)
        if isinstance(event, Ready | Preloaded):
            self._is_importing = False
        if isinstance(event, Ended):
            self._names.pop(event.pid, None)
            self._asked.discard(event.name)
        return event

    def _let_end(self) -> None:
        """A moment for a server whose socket is closed: how it ended says more than a kill."""
        with suppress(subprocess.TimeoutExpired):
            self._server.wait(_END_SECONDS)

    def _ended(self) -> Iterator[Event]:
        if not self.alive:
            return
        self.alive = False
        self._server.kill()
        self._server.wait()
        self._socket.close()
        for pid, name in self._names.items():
            yield Ended(name=name, pid=pid, code=_finish_orphan(pid))
        for name in self._asked:
            yield Ended(name=name, pid=0, code=-signal.SIGKILL)

    def _send(self, command: fork_messages.Command) -> None:
        self._outbox.put(fork_messages.COMMANDS.dump_json(command))


def _run(
    module: str,
    argument: str,
    *,
    log: Path,
    environment: dict[str, str] | None = None,
    inherited: tuple[int, ...] = (),
) -> "subprocess.Popen[bytes]":
    """Start a module in a session of its own, out of reach of the terminal's Ctrl-C."""
    # -P: a file of the user's folder must not take the place of a library.
    command = [sys.executable, "-P", "-m", module, argument, str(os.getpid())]
    with open(log, "ab", opener=logs.open_to_append) as output:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | (environment or {}),
            pass_fds=inherited,
            start_new_session=True,
        )


def _finish_orphan(pid: int) -> int:
    """Make sure of the end of a process whose fork server is dead. Returns its exit."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        # Its fork server had waited for it: the id may be somebody else's by now.
        return -signal.SIGKILL
    linux.kill_group(pid)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
