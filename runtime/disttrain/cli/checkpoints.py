"""Commands on a checkpoint: `disttrain inspect` and `export`."""

from pathlib import Path
from typing import Annotated

import typer

from disttrain.checkpoint import export as exporting
from disttrain.checkpoint.errors import AlreadyThere
from disttrain.cli import checkpoint_folder, checkpoint_table

CheckpointPath = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="Folder of a checkpoint (runs/X/checkpoints/00000003), or an output folder or a "
        "folder of checkpoints, of which the newest one is taken; or the place of a job in an "
        "object store (s3://bucket/prefix/NAME-UID), or of one of its checkpoints.",
    ),
]


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


def inspect(checkpoint: CheckpointPath, *, as_json: AsJson = False) -> None:
    """Show a checkpoint: its job, parts, files, tensors and optimizer state.

    Reads every file and checks its hash. Exits with 1 if one is damaged, and names it and the
    newest older checkpoint that is whole.

    Example: disttrain inspect runs/digits
    """
    show = checkpoint_table.json if as_json else checkpoint_table.table
    typer.echo(show(checkpoint), nl=False)


Out = Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; must not exist.")]


def export(checkpoint: CheckpointPath, out: Out) -> None:
    """Write the model of a checkpoint as one safetensors file.

    The file has the model's own names and types, all names of tied parameters included. PyTorch
    loads it without DistTrain:

    model.load_state_dict(safetensors.torch.load_file("model.safetensors"))

    All hashes of the checkpoint are checked before. The file's metadata hold a SHA-256 of the
    data behind its header ("disttrain.sha256").

    Example: disttrain export runs/digits/checkpoints/00000003 model.safetensors
    """
    typer.echo(write_model(checkpoint, out))


def write_model(checkpoint: str, out: Path) -> str:
    """Write `out`; a sentence about it. Raises CheckpointError."""
    if out.exists():
        message = f"{out} exists already; delete it or choose another name"
        raise AlreadyThere(message)
    with checkpoint_folder.resolved(checkpoint) as source:
        written = exporting.export(source.path, out)
    return f"wrote {out}: {written.tensors} tensors, {written.bytes:,} bytes, of {source.said}"
