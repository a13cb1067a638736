"""Starts the processes that evaluate a divided model, and waits for them. Leaves none behind."""

import select
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from disttrain.job import names, terminal_text
from disttrain.launch import config as launch_config
from disttrain.launch import outcome
from disttrain.launch.config import LaunchConfig
from disttrain.launch.errors import EvaluationLost
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder
from disttrain.launcher.fleet import FORK_SERVER
from disttrain.launcher.fork_messages import Ended
from disttrain.launcher.hosts import ForkHost
from disttrain.launcher.restart_policy import Exit

_OTHERS_SECONDS = 5.0
"""For the end of a process by which another one has lost its group."""
_SHOWN_CHARACTERS = 2000


def run(first: LaunchConfig) -> None:
    """Return when all processes of the replica have ended well. Raises EvaluationLost.

    `first`: what its first process is told.
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
        _wait(host, folder, [config.process for config in configs])
    finally:
        host.close()


def _wait(host: ForkHost, folder: RunFolder, processes: Sequence[str]) -> None:
    running, lost = set(processes), None
    while running:
        patience = None if lost is None else _OTHERS_SECONDS
        if not select.select(host.descriptors(), [], [], patience)[0]:
            break
        for event in host.events():
            if not isinstance(event, Ended):
                continue
            running.discard(event.name)
            if event.code == ExitCode.COMPLETE:
                continue
            error = _lost(folder, event)
            if event.code != ExitCode.RESTART:
                raise error
            lost = lost or error
    if lost is not None:
        raise lost


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
