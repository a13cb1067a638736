"""`disttrain resume`: go on with a run that was stopped or killed."""

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of the run.")]


def resume(folder: Folder) -> None:
    """Go on with the run in DIR from its newest checkpoint, with the manifest that it began with.

    A damaged checkpoint is refused before anything starts. Exits like `disttrain run`.

    Example: disttrain resume runs/digits-20260131-120000
    """
    # What runs a job is slow to import, and the other commands do without it.
    from disttrain.cli import checkpoint_folder, live  # noqa: PLC0415

    raise typer.Exit(live.resume(folder, checkpoint_folder.require_whole))
