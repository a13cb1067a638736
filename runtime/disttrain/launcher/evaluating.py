"""Starts the processes that evaluate a divided model, and waits for them. Leaves none behind."""

import select
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from disttrain.job import names, terminal_text
from disttrain.launch import config as launch_config
from disttrain.launch import linux, outcome
from disttrain.launch.config import LaunchConfig
from disttrain.launch.errors import EvaluationLost
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder
from disttrain.launcher.fleet import FORK_SERVER
from disttrain.launcher.fork_messages import Ended, Event, Started
from disttrain.launcher.hangs import Hangs, Owing
from disttrain.launcher.hosts import ForkHost
from disttrain.launcher.restart_policy import Exit

_OTHERS_SECONDS = 5.0
"""For the end of a process by which another one has lost its group."""
_SHOWN_CHARACTERS = 2000
_LOOK_SECONDS = 0.5
"""Between two looks at what the processes do."""


def run(first: LaunchConfig, stall_seconds: float) -> None:
    """Return when all processes of the replica have ended well. Raises EvaluationLost.

    `first`: what its first process is told. `stall_seconds`: for how long one may use no processor
    time. Who waits for another one uses some.
    """
    folder = RunFolder(first.run_folder)
    folder.prepare()
    host = ForkHost(folder.log(FORK_SERVER))
    try:
        configs = [replace(first, partition=each) for each in range(first.processes)]
        for config in configs:
            file = folder.config(config.process)
            launch_config.write(file, config)
            host.start(config.process, file, folder.log(config.process))
        _Watch(host, folder, [config.process for config in configs], stall_seconds).wait()
    finally:
        host.close()


class _Watch:
    """The processes, from their start to the end of the last one."""

    def __init__(
        self, host: ForkHost, folder: RunFolder, processes: Sequence[str], stall_seconds: float
    ) -> None:
        self._host, self._folder, self._stall_seconds = host, folder, stall_seconds
        self._running = set(processes)
        self._pids: dict[str, int] = {}
        # There is no coordinator whose silence would count.
        self._hangs = Hangs(stall_seconds, linux.used_ticks)
        self._lost: EvaluationLost | None = None
        """Of one whose group is over, for a reason that another one's end may tell."""

    def wait(self) -> None:
        """Raises EvaluationLost."""
        while self._running:
            patience = _LOOK_SECONDS if self._lost is None else _OTHERS_SECONDS
            if select.select(self._host.descriptors(), [], [], patience)[0]:
                for event in self._host.events():
                    self._hear(event)
            elif self._lost is None:
                self._look()
            else:
                break
        if self._lost is not None:
            raise self._lost

    def _hear(self, event: Event) -> None:
        if isinstance(event, Started):
            self._pids[event.name] = event.pid
        if not isinstance(event, Ended):
            return
        self._running.discard(event.name)
        self._pids.pop(event.name, None)
        if event.code == ExitCode.COMPLETE:
            return
        error = _lost(self._folder, event)
        if event.code != ExitCode.RESTART:
            raise error
        self._lost = self._lost or error

    def _look(self) -> None:
        stall = self._stall_seconds
        owing = [Owing(name, pid, "has not ended", stall) for name, pid in self._pids.items()]
        patience = self._host.patience_seconds()
        if patience is not None:
            owing.append(Owing(FORK_SERVER, self._host.pid, "owes an answer", min(patience, stall)))
        for hang in self._hangs.look([], None, time.monotonic(), owing):
            raise _hung(self._folder, hang.name, hang.reason)


def _hung(folder: RunFolder, name: str, reason: str) -> EvaluationLost:
    who = "the fork server"
    if name != FORK_SERVER:
        who = f"the process of partition {names.parse(name).partition}"
    return EvaluationLost(
        f"{who} hangs: it {reason}. It is ended, and so are the others. Was it stopped, or does "
        f"it wait for a file or a device? --stall-timeout gives it longer."
        f"{_printed(folder.log(name))}"
    )


def _lost(folder: RunFolder, ended: Ended) -> EvaluationLost:
    failure = outcome.read_failure(folder.failure(ended.name))
    if failure is not None:
        return EvaluationLost(failure.message)
    partition = names.parse(ended.name).partition
    said = f"the process of partition {partition} has ended: {Exit(ended.code)}"
    hint = "; if memory is short, take fewer partitions" if ended.code == -signal.SIGKILL else ""
    return EvaluationLost(f"{said}{hint}.{_printed(folder.log(ended.name))}")


def _printed(log: Path) -> str:
    try:
        text = log.read_text(errors="replace").strip()[-_SHOWN_CHARACTERS:]
    except OSError:
        return ""
    return f" It printed last:\n{terminal_text.lines(text)}" if text else ""
