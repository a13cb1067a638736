"""How commands are told which checkpoint is meant. Light: `checkpoint_folder` does the finding."""

from typing import Annotated

import typer

CheckpointPath = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="Folder of a checkpoint (runs/X/checkpoints/00000003), or an output folder or a "
        "folder of checkpoints, of which the newest one is taken; or the place of a job in an "
        "object store (s3://bucket/prefix/NAME-UID), or of one of its checkpoints.",
    ),
]
