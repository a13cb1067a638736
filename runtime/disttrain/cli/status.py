"""`disttrain status`: how a run is, or how it ended."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from disttrain.cli import status_page
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of the run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print status.json on one line instead.")]
Watch = Annotated[bool, typer.Option("--watch", help="Print every two seconds until the end.")]

WATCH_SECONDS = 2.0


def status(folder: Folder, *, as_json: AsJson = False, watch: Watch = False) -> None:
    """Show how the run in DIR is, and in one sentence what limits its speed.

    The table lists each process, while it runs with the address of its Prometheus metrics.

    Example: disttrain status runs/digits-20260131-120000 --watch
    """
    while True:
        found = status_page.find(folder)
        if found is None:
            typer.echo(f"error: {_lack(RunFolder(folder))}", err=True)
            raise typer.Exit(ExitCode.FAILED)
        if as_json:
            typer.echo(json.dumps(found.content))
        else:
            status_page.show(found)
        if not watch or found.is_over:
            return
        time.sleep(WATCH_SECONDS)


def _lack(run: RunFolder) -> str:
    if (lack := run.why_none()) is not None:
        return lack
    if run.status.exists():
        return f"{run.status} is damaged, or of a version that this one does not know"
    return f"{run.path} holds no run that has begun"
