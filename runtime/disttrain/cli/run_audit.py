"""What `disttrain audit` does."""

from pathlib import Path

import typer

from disttrain.audit import audit, reading, report
from disttrain.audit.errors import NothingToAudit
from disttrain.cli.exit_code import ExitCode


def run(folder: Path, *, as_json: bool) -> ExitCode:
    """Audit a run folder and print what held."""
    try:
        findings = audit.audit(reading.read(folder))
    except NothingToAudit as error:
        typer.echo(f"error: {error}", err=True)
        return ExitCode.BAD_MANIFEST
    typer.echo(report.to_json(findings) if as_json else report.text(findings), nl=False)
    return ExitCode.SUCCESS if audit.is_clean(findings) else ExitCode.FAILED
