"""`disttrain run`: train a job with processes of this machine, and go on with a run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Protocol

import typer

from disttrain.checkpoint.errors import CheckpointError
from disttrain.cli import reach, table, wording
from disttrain.cli.live import display, lasting_output
from disttrain.cli.manifests import Assignments
from disttrain.job import manifest_file, run_status, support
from disttrain.job.credentials import Credentials
from disttrain.job.finding import render
from disttrain.job.identity import Identity
from disttrain.job.location import Location
from disttrain.job.spec import DistTrainJob
from disttrain.launch.errors import OutputFolderInUse
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.outcome import Outcome, Result
from disttrain.launch.run_folder import (
    Reach,
    RunFolder,
    default_folders,
    require_own,
    task_folder_of,
)
from disttrain.launcher import completion, launcher
from disttrain.launcher import run as runs
from disttrain.launcher.completion import Completed
from disttrain.launcher.launcher import CoordinatorLink
from disttrain.launcher.plan import warning_of_joiners
from disttrain.launcher.run import Opening, Run
from disttrain.telemetry import logs

LOG = logs.get(__name__)

Manifest = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="Manifest of the job.")]
Output = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder for the results, new or empty. Default: runs/NAME-DATE-TIME."
    ),
]

JoinableAt = Annotated[
    str | None,
    typer.Option(
        "--joinable-at",
        metavar="HOST:PORT",
        help="An address of this machine: replicas of others may join there by `disttrain invite`. "
        "The ports behind it are used, too, one for the coordinator and one for each shard.",
    ),
]


class Office(Protocol):
    """Takes joiners in; see `launcher.enrolment.Office`."""

    reach: Reach

    def issue(self, identities: Mapping[str, Identity]) -> Mapping[str, Credentials]: ...

    def open(self, run: Run) -> AbstractContextManager[None]: ...


def run(
    manifest: Manifest,
    output: Output = None,
    assignments: Assignments = None,
    joinable_at: JoinableAt = None,
) -> None:
    """Train a job with processes of this machine and show how it goes.

    DIR gets summary.json, metrics.jsonl, model.safetensors, checkpoints/ and one log per process.
    Ctrl-C writes a checkpoint and stops; a second one kills. Exits with 0 when the job is complete,
    1 when it failed, 2 for a bad manifest, a DIR that is not empty or a model that cannot be
    divided among partitions as asked, 130 when it was interrupted.

    Example: disttrain run job.yaml --output runs/first --set spec.replicas.count=4
    """
    accepted = manifest_file.load_accepted(manifest, assignments or ())
    job = accepted.job
    for warning in accepted.warnings:
        typer.echo(warning, err=True)
    _name_what_is_missed(job)
    raise typer.Exit(train(job, output, task_folder_of(manifest), joinable_at))


def _name_what_is_missed(job: DistTrainJob) -> None:
    """Name what only a cluster would do."""
    passed_over = support.without_meaning(job)
    if passed_over:
        names = ", ".join(map(render, passed_over))
        typer.echo(f"these fields mean nothing on one machine: {names}", err=True)


def train(
    job: DistTrainJob, output: Path | None, task_folder: Path, joinable_at: str | None = None
) -> ExitCode:
    """Run a new job to its end; returns the exit code of the command."""
    _require_divisible(job, task_folder)
    office = None
    if joinable_at is not None:
        office = _office(*reach.parse_own("--joinable-at", joinable_at), task_folder)
    opening = _opening(office)
    if output is not None:
        return _watched(lambda: runs.new(job, output, task_folder, opening), office)
    return _watched(lambda: _new_by_default(job, task_folder, opening), office)


def _require_divisible(job: DistTrainJob, task_folder: Path) -> None:
    """Raises NotDivisible. Only a job with partitions runs any of its task for this."""
    if job.spec.replicas.partitions > 1:
        require: Callable[[DistTrainJob, Path], None] = table.later("require a divisible model")
        require(job, task_folder)


def _office(host: str, port: int, task_folder: Path) -> Office:
    make: Callable[[str, int, Path], Office] = table.later("take joiners in")
    return make(host, port, task_folder)


def _opening(office: Office | None) -> Opening:
    return Opening(_issue) if office is None else Opening(office.issue, office.reach)


def _new_by_default(job: DistTrainJob, task_folder: Path, opening: Opening) -> Run:
    for folder in default_folders(job.metadata.name, datetime.now().astimezone()):
        if folder.parent.exists():
            # Its name is known beforehand: in a folder that others share it may be a stranger's.
            require_own(folder.parent)
        with suppress(OutputFolderInUse):
            return runs.new(job, folder, task_folder, opening)
    raise AssertionError


def go_on(
    path: Path,
    check: Callable[[RunFolder, DistTrainJob], None],
    joinable_at: str | None = None,
    assignments: Sequence[str] = (),
) -> ExitCode:
    """Go on with the run in a folder; returns the exit code. Raises NotARunFolder.

    Nothing is started when the run is complete and its manifest, with the assignments, asks for no
    more. `check` reads the checkpoint, once nobody else writes any. `joinable_at`: instead of where
    it was joinable before.
    """
    own = None if joinable_at is None else reach.parse_own("--joinable-at", joinable_at)
    folder = RunFolder(path.resolve())
    record = folder.read_record()
    accepted = manifest_file.load_accepted(folder.job, assignments)
    job = accepted.job
    completed = completion.read(folder.summary)
    if completed and completion.is_final(completed, completion.followed(folder), job.spec):
        typer.echo(_nothing_left(job, folder, completed))
        if assignments:
            typer.echo("What --set says asks for no more, and is not kept.")
        return ExitCode.COMPLETE

    if own is None and record.reach is not None:
        own = record.reach.host, record.reach.port
    office = None if own is None else _office(*own, record.task_folder)

    def prepare() -> Run:
        folder.require_free()
        for warning in accepted.warnings if assignments else ():
            typer.echo(warning, err=True)
        check(folder, job)
        _require_divisible(job, record.task_folder)
        opening = _opening(office)
        run = runs.resumed(job, folder, _newest_checkpoint, opening, is_changed=bool(assignments))
        if assignments:
            before = f"{_shown(folder)}/{folder.job_before.name}"
            typer.echo(f"{folder.job.name} says what is set; as it was, it is in {before}")
        return run

    return _watched(prepare, office)


def _nothing_left(job: DistTrainJob, folder: RunFolder, completed: Completed) -> str:
    shown = _shown(folder)
    return (
        f"{job.metadata.name} is {wording.completed(completed)}. The model is "
        f"{shown}/{folder.model.name}. To train longer, ask for more by "
        f"{wording.limit(completed.reason)}: disttrain resume {shown} --set PATH=VALUE"
    )


def _watched(prepare: Callable[[], Run], office: Office | None = None) -> ExitCode:
    run = prepare()
    if office is not None and (unbounded := warning_of_joiners(run.job)) is not None:
        typer.echo(unbounded, err=True)
    taking = nullcontext() if office is None else office.open(run)
    with taking, lasting_output(lambda error: _say_unseen(error, run)):
        typer.echo(f"{run.job.metadata.name}: output in {_shown(run.folder)}")
        with display(lambda: run_status.read(run.folder.status)) as shown:
            outcome = launcher.run_job(run, shown, _open_link)
        _conclude(outcome, run)
    return outcome.exit_code


def _say_unseen(error: OSError, run: Run) -> None:
    LOG.info("standard output takes no more", reason=error.strerror)
    typer.echo(
        f"standard output takes no more ({error.strerror}); {run.job.metadata.name} goes on "
        f"unseen: Ctrl-C stops it, `disttrain status {_shown(run.folder)}` shows it",
        err=True,
    )


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
        if folder.best_model.exists():
            typer.echo(f"The model of the best evaluation is {shown}/{folder.best_model.name}")
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
            typer.echo(f"The logs are in {shown}/{folder.logs.name}")
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
