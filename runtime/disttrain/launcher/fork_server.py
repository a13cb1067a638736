"""Imports the roles and with them torch once, then forks shards and replicas on command.

`python -m disttrain.launcher.fork_server SOCKET PARENT`, with the allocator's settings in its
environment. It has one thread and starts none: a fork copies only the thread that forks, with
whatever locks the others hold.

Its children are killed by the kernel when it ends. When the launcher ends it kills them itself,
with all that they started, which it adopts and the kernel does not know of; should it be stopped,
the kernel wakes it. While it imports, where none of its own code runs, the kernel kills it instead.
"""

import faulthandler
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from disttrain.job.names import Role
from disttrain.launch import config as launch_config
from disttrain.launch import linux, process
from disttrain.launch.exit_code import ExitCode
from disttrain.launcher import fork_messages
from disttrain.launcher.fork_messages import Preload, Start
from disttrain.telemetry import logs


@dataclass(frozen=True, slots=True)
class _Child:
    """A forked process, not yet waited for."""

    name: str
    pid: int
    pidfd: int
    """Readable when the process has ended."""


class ForkServer:
    """Serves one launcher over one socket, until the launcher is gone."""

    def __init__(self, connection: socket.socket, launcher: int) -> None:
        self._connection = connection
        self._launcher = launcher
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection, selectors.EVENT_READ)

    def serve(self) -> Start | None:
        """Carry out commands. Returns in the server None, in a forked child what it is to run."""
        try:
            return self._serve()
        except ConnectionError:
            # What the launcher did not read before its end makes that end an error.
            return None

    def _serve(self) -> Start | None:
        linux.wake_when_parent_ends()
        self._say(fork_messages.Ready(threads=_threads()))
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._reap(key.data)
                    continue
                packet = self._connection.recv(fork_messages.LARGEST_BYTES)
                if not packet:
                    return None
                if child := self._carry_out(fork_messages.COMMANDS.validate_json(packet)):
                    return child

    def _carry_out(self, command: fork_messages.Command) -> Start | None:
        match command:
            case Start():
                return self._fork(command)
            case Preload():
                linux.end_with_parent(self._launcher, signal.SIGKILL)
                preloaded = _preload(command)
                linux.wake_when_parent_ends()
                self._say(preloaded)
        return None

    def _fork(self, start: Start) -> Start | None:
        for stream in (sys.stdout, sys.stderr):
            # The user's module may have closed it.
            with suppress(ValueError):
                stream.flush()
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            sys.stderr.write(f"fork failed: {error.strerror}\n")
            self._say(fork_messages.Ended(name=start.name, pid=0, code=ExitCode.CRASHED))
            return None
        if pid == 0:
            self._leave(parent, start)
            return start
        self._watch(_Child(start.name, pid, os.pidfd_open(pid)))
        return None

    def _watch(self, child: _Child) -> None:
        self._children[child.pid] = child
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)
        self._say(fork_messages.Started(name=child.name, pid=child.pid))

    def _leave(self, parent: int, start: Start) -> None:
        """In the child: become a process of its own, without anything of the server's."""
        linux.end_with_parent(parent, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        self._selector.close()
        self._connection.close()
        for child in self._children.values():
            os.close(child.pidfd)
        redirect(Path(start.log))

    def _reap(self, child: _Child) -> None:
        linux.kill_group(child.pid)
        _, status = os.waitpid(child.pid, 0)
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        del self._children[child.pid]
        code = os.waitstatus_to_exitcode(status)
        self._say(fork_messages.Ended(name=child.name, pid=child.pid, code=code))

    def _say(self, event: fork_messages.Event) -> None:
        self._connection.send(fork_messages.EVENTS.dump_json(event))


def _preload(preload: Preload) -> fork_messages.Preloaded:
    for library in preload.libraries:
        # Whoever needs it meets the error again and explains it.
        with suppress(Exception):
            importlib.import_module(library)
    sys.path.insert(0, preload.folder)
    # User code may raise anything, SystemExit too; the replicas meet it again and explain it.
    try:
        importlib.import_module(preload.module)
    except BaseException as error:
        return fork_messages.Preloaded(threads=_threads(), error=type(error).__name__)
    finally:
        # Collecting would write to the pages that all processes share.
        gc.freeze()
    return fork_messages.Preloaded(threads=_threads(), error="")


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def redirect(log: Path) -> None:
    """Let this process write to the end of a file, and read nothing."""
    source = os.open(os.devnull, os.O_RDONLY)
    target = logs.open_to_append(log)
    os.dup2(source, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(source)
    os.close(target)


def _run_child(start: Start) -> NoReturn:
    config_file = Path(start.config)
    gc.enable()
    _set_threads(launch_config.read(config_file).threads)
    process.end(process.run(config_file))


def _set_threads(threads: int) -> None:
    os.environ["OMP_NUM_THREADS"] = str(threads)
    # The roles have imported torch, if they need it at all.
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


def main() -> None:
    descriptor, parent = map(int, sys.argv[1:])
    linux.end_with_parent(parent, signal.SIGKILL)
    linux.set_process_name("dt:fork-server")
    linux.adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    # Nothing that an import makes is garbage; looking for some takes a tenth of the time.
    gc.disable()
    for role in (Role.SHARD, Role.REPLICA):
        importlib.import_module(process.server_module(role))
    server = ForkServer(socket.socket(fileno=descriptor), parent)
    signal.signal(signal.SIGTERM, lambda *_: _end())
    gc.freeze()
    if start := server.serve():
        _run_child(start)
    _end()


def _end() -> NoReturn:
    linux.kill_children()
    os._exit(ExitCode.COMPLETE)


if __name__ == "__main__":
    main()
