"""Commands on a checkpoint: `disttrain inspect`, `export` and `evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from disttrain.checkpoint.errors import AlreadyThere

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
    from disttrain.cli import checkpoint_table  # noqa: PLC0415 - It imports numpy.

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
    # They import numpy.
    from disttrain.checkpoint import export as exporting  # noqa: PLC0415
    from disttrain.cli import checkpoint_folder  # noqa: PLC0415

    if out.exists():
        message = f"{out} exists already; delete it or choose another name"
        raise AlreadyThere(message)
    with checkpoint_folder.resolved(checkpoint) as source:
        written = exporting.export(source.path, out)
    return f"wrote {out}: {written.tensors} tensors, {written.bytes:,} bytes, of {source.said}"


JobPath = Annotated[
    Path | None,
    typer.Option(
        "--job",
        metavar="JOB.yaml",
        help="Manifest whose task is used. Default: that of the run the checkpoint lies in.",
    ),
]


def evaluate(checkpoint: CheckpointPath, job: JobPath = None) -> None:
    """Evaluate a checkpoint's parameters with the task of its job, on the test split.

    Prints one line per measure, the mean over all samples. The task's module is taken from the
    manifest's folder; the checkpoint must be of the model that this task makes.

    Example: disttrain evaluate runs/digits
    """
    from disttrain.cli import checkpoint_evaluation  # noqa: PLC0415 - It imports torch.

    for line in checkpoint_evaluation.run(checkpoint, job):
        typer.echo(line)
