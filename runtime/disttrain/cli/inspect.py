"""`disttrain inspect`: what a checkpoint holds, and whether it is whole."""

from typing import Annotated

import typer

from disttrain.cli.checkpoint_argument import CheckpointPath

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


def inspect(checkpoint: CheckpointPath, *, as_json: AsJson = False) -> None:
    """Show a checkpoint: its job, shards, files, tensors and optimizer state.

    Reads every file and checks its hash. Exits with 1 if one is damaged, and names it and the
    newest older checkpoint that is whole.

    Example: disttrain inspect runs/digits
    """
    from disttrain.cli import checkpoint_table  # noqa: PLC0415 - It imports numpy.

    show = checkpoint_table.json if as_json else checkpoint_table.table
    typer.echo(show(checkpoint), nl=False)
