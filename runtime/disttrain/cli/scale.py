"""`disttrain scale`: another number of replicas for jobs of a cluster."""

from typing import Annotated

import typer

from disttrain.cli import objects
from disttrain.cli.cluster_options import JobNames, jobs_of, on_cluster
from disttrain.cluster.target import Target

Replicas = Annotated[int, typer.Option(min=1, metavar="N", help="Replicas that are wanted.")]


@on_cluster
def scale(target: Target, names: JobNames, *, replicas: Replicas) -> None:
    """Change the number of replicas of jobs while they train; no sample is lost or repeated.

    Example: disttrain scale digits --replicas=8
    """
    jobs = jobs_of(target)
    for name in jobs.choose(names):
        jobs.scale(name, replicas)
        typer.echo(f"{objects.named(name)} scaled")
