"""`disttrain suspend`: let jobs of a cluster rest."""

import typer

from disttrain.cli import objects
from disttrain.cli.cluster_options import JobNames, jobs_of, on_cluster
from disttrain.cluster.target import Target


@on_cluster
def suspend(target: Target, names: JobNames) -> None:
    """Stop all processes of jobs after a checkpoint; `disttrain resume NAME` goes on from there.

    Example: disttrain suspend digits
    """
    jobs = jobs_of(target)
    for name in jobs.choose(names):
        jobs.patch(name, {"suspend": True})
        typer.echo(f"{objects.named(name)} suspended")
