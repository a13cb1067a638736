"""A shard in whose place shard 0 is killed at the worst moments, once each, in this order."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from disttrain.launch.config import LaunchConfig
from disttrain.parameter_server import server
from disttrain.parameter_server.acknowledged import AcknowledgedFile
from disttrain.parameter_server.recovery import Losses

PUSHES = 100
"""Stored before the first death."""
DEATHS = ("stored, not logged, not answered", "settled, not joined", "joined, not logged")


def main(config: LaunchConfig) -> int:
    """See `parameter_server.server.main`."""
    if config.index == 0:
        died = config.run_folder / "died"
        deaths = len(died.read_text().splitlines()) if died.exists() else 0
        if deaths < len(DEATHS):
            _DOOMS[deaths](lambda: _die(died, DEATHS[deaths]))
    return server.main(config)


def _die(note: Path, how: str) -> None:
    with note.open("a") as file:
        file.write(f"{how}\n")
    os.kill(os.getpid(), signal.SIGKILL)


def _after_storing(die: Callable[[], None]) -> None:
    store, stored = AcknowledgedFile.store, []

    def doomed(*arguments: Any) -> None:
        store(*arguments)
        stored.append(1)
        if len(stored) == PUSHES:
            die()

    AcknowledgedFile.store = doomed  # type: ignore[assignment,method-assign]


def _after_settling(die: Callable[[], None]) -> None:
    settle = Losses.settle

    def doomed(*arguments: Any) -> None:
        settle(*arguments)
        die()

    Losses.settle = doomed  # type: ignore[assignment,method-assign]


def _after_joining(die: Callable[[], None]) -> None:
    server.record_start = lambda *_: die()  # type: ignore[attr-defined]


_DOOMS = (_after_storing, _after_settling, _after_joining)
