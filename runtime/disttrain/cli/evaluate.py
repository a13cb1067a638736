"""`disttrain evaluate`: measure a checkpoint on the test split, in this process."""

from pathlib import Path
from typing import Annotated

import typer

from disttrain.cli.checkpoint_argument import CheckpointPath

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
