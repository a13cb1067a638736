"""`disttrain replay`: a recorded run once more, in one process."""

from pathlib import Path
from typing import Annotated

import typer

from disttrain.launch.exit_code import ExitCode

RunPath = Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a recorded run.")]
ToUpdate = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Stop when every shard has applied N updates."),
]
Serial = Annotated[
    bool,
    typer.Option(
        "--serial", help="Also train on the same samples in the same order without staleness."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


def replay(
    folder: RunPath, to_update: ToUpdate = None, *, serial: Serial = False, as_json: AsJson = False
) -> None:
    """Reproduce an asynchronous run bit for bit, and say what asynchrony did.

    The run must have been made with spec.record: true, and its shards must have lived through it.
    Runs the task's code of today. Exits with 0 when everything is the same to the bit, 1 when
    something differs or the run cannot be replayed.

    Example: disttrain replay runs/digits --serial
    """
    from disttrain.replay import outcome, report  # noqa: PLC0415 - They import torch.

    found = outcome.replay(folder, outcome.Wanted(to_update=to_update, serial=serial))
    typer.echo(report.to_json(found) if as_json else report.text(found), nl=False)
    raise typer.Exit(ExitCode.COMPLETE if found.is_same else ExitCode.FAILED)
