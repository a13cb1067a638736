"""`disttrain audit`: whether a run kept its promises."""

from pathlib import Path
from typing import Annotated

import typer

from disttrain.audit.errors import NothingToAudit
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder

RunPath = Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


def audit(folder: RunPath, *, as_json: AsJson = False) -> None:
    """Check the promises of the design from a run's own logs, and say what held.

    Reads the ledgers of all processes, the journal, the summary and the checkpoints. Exits with 0
    when nothing was violated, 1 when something was or the logs lack records, 2 when DIR is no run.

    Example: disttrain audit runs/digits
    """
    raise typer.Exit(run(folder, as_json=as_json))


def run(folder: Path, *, as_json: bool) -> ExitCode:
    """Audit a run folder and print what held."""
    # They import torch, with the processes.
    from disttrain.audit import audit as promises  # noqa: PLC0415
    from disttrain.audit import reading, report  # noqa: PLC0415

    # Asked first: a run that ends meanwhile has not ended in all that is read.
    running = RunFolder(folder).is_held()
    try:
        findings = promises.audit(reading.read(folder))
    except NothingToAudit as error:
        typer.echo(f"error: {error}", err=True)
        return ExitCode.USAGE
    shown = report.to_json if as_json else report.text
    typer.echo(shown(findings, running=running), nl=False)
    return ExitCode.COMPLETE if promises.is_clean(findings) else ExitCode.FAILED
