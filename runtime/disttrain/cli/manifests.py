"""Commands on manifests, which start no job: `disttrain validate` and `schema`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from disttrain.cli import rate_picture, table
from disttrain.job import manifest_file, parsing, terminal_text
from disttrain.job.fields import schema_text
from disttrain.job.finding import InvalidManifest, located_lines
from disttrain.job.spec import DistTrainJob
from disttrain.job.validation import Outcome
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import task_folder_of
from disttrain.task.errors import TaskError

Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE", help="Manifests to check; - is the standard input."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a field of the manifest; repeatable."),
]
TriesTask = Annotated[
    bool,
    typer.Option("--task", help="Load the tasks and look at their data, too: their code runs."),
]


def validate(files: Files, *, tries_task: TriesTask = False) -> None:
    """Check manifests and print everything that is wrong with them.

    The manifest alone is looked at. With --task the task's code is run as well, as each replica
    does before it joins: its arguments and its data are checked, sources read in part.

    Prints `ok NAME` for each good job, and its learning rate over the run where that changes and
    the manifest alone tells how, else FILE:LINE: PATH: MESSAGE for each finding. A file may hold
    several jobs. Warnings are printed too, but a job with warnings is good.
    Exits with 0 if all are good, else with 2.

    Example: disttrain validate job.yaml

    Example: disttrain validate --task job.yaml

    Example: kubectl get dtj digits -o yaml | disttrain validate -
    """
    results = [_check(file, tries_task=tries_task) for file in files]
    if not all(results):
        raise typer.Exit(ExitCode.USAGE)


def _check(file: Path, *, tries_task: bool) -> bool:
    try:
        jobs = parsing.parse_jobs(manifest_file.read_text(file))
    except InvalidManifest as error:
        typer.echo(terminal_text.lines(str(error)))
        return False
    results = [_is_good(parsed, file, tries_task=tries_task) for parsed in jobs]
    return all(results)


def _is_good(parsed: Outcome, file: Path, *, tries_task: bool) -> bool:
    for line in located_lines(parsed.findings, str(file)):
        typer.echo(line)
    if parsed.job is None:
        return False
    if tries_task and (wrong := _wrong_with_task(parsed.job, file)):
        typer.echo(terminal_text.lines(f"{file}: {wrong}"))
        return False
    typer.echo(f"ok {parsed.job.metadata.name}")
    if (picture := rate_picture.line(parsed.job.spec)) is not None:
        typer.echo(f"   {picture}")
    return True


def _wrong_with_task(job: DistTrainJob, file: Path) -> str:
    check: Callable[[DistTrainJob, Path], None] = table.later("check a task's data")
    try:
        check(job, task_folder_of(file))
    except TaskError as error:
        return str(error)
    return ""


def schema() -> None:
    """Print the JSON schema of manifests.

    Editors with the YAML language server complete and check a manifest whose first line is
    `# yaml-language-server: $schema=disttrain-job.schema.json`.

    Example: disttrain schema > disttrain-job.schema.json
    """
    typer.echo(schema_text(), nl=False)
