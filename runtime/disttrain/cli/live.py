"""Shows a job while it runs, and keeps a run from failing with what is shown of it."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from typing import Any, Protocol, Self, TextIO, cast

import typer

from disttrain.cli import table
from disttrain.cli.wording import measures, progress_line
from disttrain.job import terminal_text
from disttrain.job.run_status import RunStatus
from disttrain.launcher.launcher import Watcher
from disttrain.launcher.supervision import Process


@contextmanager
def lasting_output(lost: Callable[[OSError], None]) -> Iterator[None]:
    """For work that is worth more than what is shown of it: writing never fails in this block.

    Of a stream that cannot be written nothing is shown any more. `lost` is told the reason, once,
    if it is standard output; it may write to both.
    """
    with (
        redirect_stdout(cast(TextIO, _Lasting(sys.stdout, lost))),
        redirect_stderr(cast(TextIO, _Lasting(sys.stderr, lambda _error: None))),
    ):
        yield


class _Lasting:
    """As much of a stream as writing and asking for its kind need."""

    def __init__(self, stream: TextIO, lost: Callable[[OSError], None]) -> None:
        self._stream = stream
        self._lost = lost

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as error:
            self._lose(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _lose(self, error: OSError) -> None:
        # What the stream holds back would fail at the exit: it goes nowhere, too.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)
        self._lost(error)


LINE_SECONDS = 5.0

NEWS_SECONDS = 2.0
"""Shortest time between two lines of which the second only tells new measures."""


class Display(Watcher, AbstractContextManager["Display"], Protocol):
    """Shows a run from its start to its end."""


class PlainDisplay:
    """Prints progress as lines: one every few seconds and one per event."""

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


def display(read: Callable[[], RunStatus | None]) -> Display:
    """What shows a job, whose status `read` gives: a picture on a terminal, lines elsewhere."""
    if not sys.stdout.isatty():
        return PlainDisplay(read)
    shown: Display = table.later("display on a terminal")(read)
    return shown
