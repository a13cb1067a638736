"""`disttrain export`: a checkpoint as one file for plain PyTorch."""

from pathlib import Path
from typing import Annotated

import typer

from disttrain.checkpoint.errors import AlreadyThere
from disttrain.cli.checkpoint_argument import CheckpointPath

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
    typer.echo(run(checkpoint, out))


def run(checkpoint: str, out: Path) -> str:
    """Write `out`; a sentence about it. Raises CheckpointError."""
    # They import numpy.
    from disttrain.checkpoint import export as exporting  # noqa: PLC0415
    from disttrain.cli import checkpoint_folder  # noqa: PLC0415

    if out.exists():
        message = f"{out} exists already; delete it or choose another name"
        raise AlreadyThere(message)
    with checkpoint_folder.resolved(checkpoint) as source:
        written = exporting.export(source.path, out)
    return f"wrote {out}: {written.tensors} tensors, {written.bytes:,} bytes, of {source.said}"
