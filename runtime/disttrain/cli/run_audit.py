"""What `disttrain audit` does."""

from pathlib import Path

import typer

from disttrain.audit import audit, reading, report
from disttrain.audit.errors import NothingToAudit
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder


def run(folder: Path, *, as_json: bool) -> ExitCode:
    """Audit a run folder and print what held."""
    # Asked first: a run that ends meanwhile has not ended in all that is read.
    running = RunFolder(folder).is_held()
    try:
        findings = audit.audit(reading.read(folder))
    except NothingToAudit as error:
        typer.echo(f"error: {error}", err=True)
        return ExitCode.USAGE
    shown = report.to_json if as_json else report.text
    typer.echo(shown(findings, running=running), nl=False)
    return ExitCode.COMPLETE if audit.is_clean(findings) else ExitCode.FAILED
