"""`disttrain run`: train a job with processes of this machine."""

from pathlib import Path
from typing import Annotated

import typer

from disttrain.cli import live
from disttrain.cli.manifests import Assignments
from disttrain.job import manifest_file, support
from disttrain.job.finding import render
from disttrain.job.spec import DistTrainJob

Manifest = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="Manifest of the job.")]
Output = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder for the results, new or empty. Default: runs/NAME-DATE-TIME."
    ),
]


def run(manifest: Manifest, output: Output = None, assignments: Assignments = None) -> None:
    """Train a job with processes of this machine and show how it goes.

    DIR gets summary.json, metrics.jsonl, model.safetensors, checkpoints/ and one log per process.
    Ctrl-C writes a checkpoint and stops; a second one kills. Exits with 0 when the job is complete,
    1 when it failed, 2 for a bad manifest or a DIR that is not empty, 130 when it was interrupted.

    Example: disttrain run job.yaml --output runs/first --set spec.replicas.count=4
    """
    accepted = manifest_file.load_accepted(manifest, assignments or ())
    job = accepted.job
    for warning in accepted.warnings:
        typer.echo(warning, err=True)
    _name_what_is_missed(job)
    raise typer.Exit(live.run(job, output, manifest.parent))


def _name_what_is_missed(job: DistTrainJob) -> None:
    """Name what only a cluster would do."""
    passed_over = support.without_meaning(job)
    if passed_over:
        names = ", ".join(map(render, passed_over))
        typer.echo(f"these fields mean nothing on one machine: {names}", err=True)
