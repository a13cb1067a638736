"""`disttrain audit`: whether a run kept its promises."""

from pathlib import Path
from typing import Annotated

import typer

RunPath = Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


def audit(folder: RunPath, *, as_json: AsJson = False) -> None:
    """Check the promises of the design from a run's own logs, and say what held.

    Reads the ledgers of all processes, the journal, the summary and the checkpoints. Exits with 0
    when nothing was violated, 1 when something was or the logs lack records, 2 when DIR is no run.

    Example: disttrain audit runs/digits
    """
    from disttrain.cli import run_audit  # noqa: PLC0415 - It imports torch, with the processes.

    raise typer.Exit(run_audit.run(folder, as_json=as_json))
