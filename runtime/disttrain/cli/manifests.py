"""Commands on manifests, which run nothing: `disttrain validate` and `schema`."""

from pathlib import Path
from typing import Annotated

import typer

from disttrain.cli import rate_picture
from disttrain.job import manifest_file, parsing, terminal_text
from disttrain.job.fields import schema_text
from disttrain.job.finding import InvalidManifest, located_lines
from disttrain.job.validation import Outcome
from disttrain.launch.exit_code import ExitCode

Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE", help="Manifests to check; - is the standard input."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a field of the manifest; repeatable."),
]


def validate(files: Files) -> None:
    """Check manifests and print everything that is wrong with them.

    The manifest alone is looked at, not the task's code, which `disttrain run` loads.

    Prints `ok NAME` for each good job, and its learning rate over the run where that changes and
    the manifest alone tells how, else FILE:LINE: PATH: MESSAGE for each finding. A file may hold
    several jobs. Warnings are printed too, but a job with warnings is good.
    Exits with 0 if all are good, else with 2.

    Example: disttrain validate job.yaml

    Example: kubectl get dtj digits -o yaml | disttrain validate -
    """
    results = [_check(file) for file in files]
    if not all(results):
        raise typer.Exit(ExitCode.USAGE)


def _check(file: Path) -> bool:
    try:
        jobs = parsing.parse_jobs(manifest_file.read_text(file))
    except InvalidManifest as error:
        typer.echo(terminal_text.lines(str(error)))
        return False
    for parsed in jobs:
        _show(parsed, str(file))
    return all(parsed.job is not None for parsed in jobs)


def _show(parsed: Outcome, source: str) -> None:
    for line in located_lines(parsed.findings, source):
        typer.echo(line)
    if parsed.job is not None:
        typer.echo(f"ok {parsed.job.metadata.name}")
        if (picture := rate_picture.line(parsed.job.spec)) is not None:
            typer.echo(f"   {picture}")


def schema() -> None:
    """Print the JSON schema of manifests.

    Editors with the YAML language server complete and check a manifest whose first line is
    `# yaml-language-server: $schema=disttrain-job.schema.json`.

    Example: disttrain schema > disttrain-job.schema.json
    """
    typer.echo(schema_text(), nl=False)
