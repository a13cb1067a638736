"""Progress as lines, for output that is no terminal: one every few seconds and one per event."""

import time
from collections.abc import Callable, Sequence
from typing import Self

import typer

from disttrain.cli.wording import measures, progress_line
from disttrain.job import terminal_text
from disttrain.job.run_status import RunStatus
from disttrain.launcher.supervision import Process

LINE_SECONDS = 5.0

NEWS_SECONDS = 2.0
"""Shortest time between two lines of which the second only tells new measures."""


class PlainDisplay:
    """Prints lines to standard output."""

    def __init__(self, read: Callable[[], RunStatus | None]) -> None:
        self._read = read
        self._last = time.monotonic()
        self._phase = ""
        self._measures = ""
        self._warned: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def event(self, text: str) -> None:
        typer.echo(terminal_text.escaped(text))

    def tick(self, processes: Sequence[Process]) -> None:  # noqa: ARG002 - a line has no room for them
        """Print a line of progress when it is time for one, or when there is news."""
        status = self._read()
        if status is None:
            return
        for warning in status.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                self.event(f"warning: {warning}")
        measured = measures(status.training.metrics)
        now = time.monotonic()
        wait = NEWS_SECONDS if measured != self._measures else LINE_SECONDS
        if status.phase != self._phase or now >= self._last + wait:
            typer.echo(progress_line(status))
            self._last = now
            self._phase, self._measures = status.phase, measured
