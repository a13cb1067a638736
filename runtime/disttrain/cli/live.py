"""What `run` and `resume` have in common: show the job while it runs, and say how it ended."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, Self, TextIO, cast

import typer

from disttrain.checkpoint.errors import CheckpointError
from disttrain.cli import table, wording
from disttrain.cli.wording import measures, progress_line
from disttrain.job import manifest_file, run_status, terminal_text
from disttrain.job.credentials import Credentials
from disttrain.job.identity import Identity
from disttrain.job.location import Location
from disttrain.job.run_status import RunStatus
from disttrain.job.spec import DistTrainJob
from disttrain.launch.errors import OutputFolderInUse
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.outcome import Outcome, Result
from disttrain.launch.run_folder import RunFolder, default_folders, require_own
from disttrain.launcher import completion, local
from disttrain.launcher import run as runs
from disttrain.launcher.completion import Completed
from disttrain.launcher.launcher import CoordinatorLink, Watcher
from disttrain.launcher.run import Run
from disttrain.launcher.supervision import Process
from disttrain.telemetry import logs


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


LOG = logs.get(__name__)
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


def run(job: DistTrainJob, output: Path | None, task_folder: Path) -> ExitCode:
    """Run a new job to its end; returns the exit code of the command."""
    if output is not None:
        return _watched(lambda: runs.new(job, output, task_folder, _issue))
    return _watched(lambda: _new_by_default(job, task_folder))


def _new_by_default(job: DistTrainJob, task_folder: Path) -> Run:
    for folder in default_folders(job.metadata.name, datetime.now().astimezone()):
        if folder.parent.exists():
            # Its name is known beforehand: in a folder that others share it may be a stranger's.
            require_own(folder.parent)
        with suppress(OutputFolderInUse):
            return runs.new(job, folder, task_folder, _issue)
    raise AssertionError


def resume(path: Path, check: Callable[[Path], None]) -> ExitCode:
    """Go on with the run in a folder; returns the exit code. Raises NotARunFolder.

    Nothing is started when the run is complete and its manifest asks for no more. `check` reads the
    checkpoint, once nobody else writes any.
    """
    folder = RunFolder(path.resolve())
    folder.read_record()
    job = manifest_file.load_job(folder.job)
    completed = completion.read(folder.summary)
    if completed and completion.is_final(completed, completion.followed(folder), job.spec):
        typer.echo(_nothing_left(job, folder, completed))
        return ExitCode.COMPLETE

    def prepare() -> Run:
        folder.require_free()
        check(path)
        return runs.resumed(job, folder, _newest_checkpoint, _issue)

    return _watched(prepare)


def _nothing_left(job: DistTrainJob, folder: RunFolder, completed: Completed) -> str:
    shown = _shown(folder)
    return (
        f"{job.metadata.name} is {wording.completed(completed)}. The model is "
        f"{shown}/{folder.model.name}. To train longer, ask for more by "
        f"{wording.limit(completed.reason)} in {shown}/{folder.job.name}, "
        f"and then: disttrain resume {shown}"
    )


def _watched(prepare: Callable[[], Run]) -> ExitCode:
    run = prepare()
    with lasting_output(lambda error: _say_unseen(error, run)):
        typer.echo(f"{run.job.metadata.name}: output in {_shown(run.folder)}")
        with display(lambda: run_status.read(run.folder.status)) as shown:
            outcome = local.run_job(run, shown, _open_link)
        _conclude(outcome, run)
    return outcome.exit_code


def _say_unseen(error: OSError, run: Run) -> None:
    LOG.info("standard output takes no more", reason=error.strerror)
    typer.echo(
        f"standard output takes no more ({error.strerror}); {run.job.metadata.name} goes on "
        f"unseen: Ctrl-C stops it, `disttrain status {_shown(run.folder)}` shows it",
        err=True,
    )


def display(read: Callable[[], RunStatus | None]) -> Display:
    """What shows a job, whose status `read` gives: a picture on a terminal, lines elsewhere."""
    if not sys.stdout.isatty():
        return PlainDisplay(read)
    shown: Display = table.later("display on a terminal")(read)
    return shown


def _issue(identities: Mapping[str, Identity]) -> Mapping[str, Credentials]:
    issue: runs.Issue = table.later("issue credentials")
    return issue(identities)


def _newest_checkpoint(location: Location) -> Path | None:
    newest: runs.NewestCheckpoint = table.later("newest checkpoint")
    return newest(location)


def _open_link(run: Run) -> CoordinatorLink:
    open_link: Callable[[Run], CoordinatorLink] = table.later("open a link")
    return open_link(run)


def _conclude(outcome: Outcome, run: Run) -> None:
    folder = run.folder
    shown = _shown(folder)
    if outcome.result is Result.COMPLETE:
        ended = wording.ending(outcome.result, outcome.reason, outcome.message)
        typer.echo(f"{ended}: the model is {shown}/{folder.model.name}")
        said = run_status.read(folder.status)
        measured = None if said is None else said.final_measures
        if missed := wording.missed(run.job.spec.stop.target_metric, measured):
            typer.echo(missed)
    elif outcome.result is Result.STOPPED:
        # Why it stopped also says if there was no room for a last checkpoint.
        why = outcome.message or "interrupted"
        if _can_go_on(run):
            typer.echo(f"Stopped: {why}. Go on with: disttrain resume {shown}")
        else:
            typer.echo(f"Stopped: {why}. There is no checkpoint to go on from")
    else:
        typer.echo(f"Failed ({outcome.reason}): {outcome.message}", err=True)
        typer.echo(f"The logs are in {shown}/{folder.logs.name}", err=True)


def _can_go_on(run: Run) -> bool:
    try:
        return _newest_checkpoint(run.folder.checkpoints(run.job)) is not None
    except CheckpointError:
        # A store that is away now may have one, as a resume will tell.
        return True


def _shown(folder: RunFolder) -> str:
    here = Path.cwd()
    path = folder.path
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
