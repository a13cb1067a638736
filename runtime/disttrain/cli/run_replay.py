"""What `disttrain replay` does."""

from pathlib import Path

import typer

from disttrain.launch.exit_code import ExitCode
from disttrain.replay import outcome, report


def run(folder: Path, to_update: int | None, *, serial: bool, as_json: bool) -> ExitCode:
    """Replay a run and print what came out. Raises DistTrainError when it cannot be replayed."""
    found = outcome.replay(folder, outcome.Wanted(to_update=to_update, serial=serial))
    typer.echo(report.to_json(found) if as_json else report.text(found), nl=False)
    return ExitCode.COMPLETE if found.is_same else ExitCode.FAILED
