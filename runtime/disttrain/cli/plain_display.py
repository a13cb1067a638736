"""Progress as lines, for output that is no terminal: one every few seconds and one per event."""

import time
from collections.abc import Sequence

import typer

from disttrain.launch.run import Run
from disttrain.launch.supervision import Process

LINE_SECONDS = 5.0


class PlainDisplay:
    """Prints lines to standard output."""

    def __init__(self, run: Run) -> None:
        self._status = run.folder.status
        self._next = time.monotonic() + LINE_SECONDS

    def event(self, text: str) -> None:
        """Print what happened."""
        typer.echo(text)

    def tick(self, processes: Sequence[Process]) -> None:
        """Print a line of progress when it is time for one."""
