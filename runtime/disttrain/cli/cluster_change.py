"""Changes of jobs of a cluster: `disttrain scale`, `suspend` and `delete`."""

from typing import Annotated

import typer

from disttrain.cli.cluster_options import (
    AnyJobNames,
    JobNames,
    Selector,
    jobs_of,
    named,
    on_cluster,
)
from disttrain.cluster.errors import NotFound
from disttrain.cluster.interface import Target
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.resources import CLAIMS, JOBS

Replicas = Annotated[int, typer.Option(min=1, metavar="N", help="Replicas that are wanted.")]


@on_cluster
def scale(target: Target, names: JobNames, *, replicas: Replicas) -> None:
    """Change the number of replicas of jobs while they train; no sample is lost or repeated.

    Example: disttrain scale digits --replicas=8
    """
    jobs = jobs_of(target)
    for name in jobs.choose(names):
        jobs.scale(name, replicas)
        typer.echo(f"{named(name)} scaled")


@on_cluster
def suspend(target: Target, names: JobNames) -> None:
    """Stop all processes of jobs after a checkpoint; `disttrain resume NAME` goes on from there.

    Example: disttrain suspend digits
    """
    jobs = jobs_of(target)
    for name in jobs.choose(names):
        jobs.patch(name, {"suspend": True})
        typer.echo(f"{named(name)} suspended")


All = Annotated[bool, typer.Option("--all", help="All jobs of the namespace.")]
Wait = Annotated[bool, typer.Option(help="Wait until the jobs and their pods are gone.")]
Ignore = Annotated[bool, typer.Option("--ignore-not-found", help="It is fine if there is none.")]


@on_cluster
def delete(
    target: Target,
    names: AnyJobNames = None,
    *,
    selector: Selector = "",
    everything: All = False,
    wait: Wait = True,
    ignore_not_found: Ignore = False,
) -> None:
    """Delete jobs with everything that belongs to them but the volume with their checkpoints.

    Example: disttrain delete digits

    Example: disttrain delete -l team=vision --no-wait
    """
    jobs = jobs_of(target)
    chosen = jobs.choose(names or (), selector, everything=everything)
    if not chosen:
        typer.echo(f"No jobs found in {jobs.namespace} namespace.", err=True)
    deleted = []
    for name in chosen:
        try:
            deleted.append(_delete(jobs, name))
        except NotFound:
            if not ignore_not_found:
                raise
    if wait:
        for name, uid in deleted:
            jobs.wait_until_gone(name, uid)


def _delete(jobs: Jobs, name: str) -> tuple[str, str]:
    job = jobs.get(name)
    uid = job["metadata"]["uid"]
    jobs.delete(name, uid)
    typer.echo(f'{JOBS.word} "{name}" deleted')
    claim = jobs.kept_claim(name)
    if claim is not None:
        typer.echo(f"{CLAIMS.word}/{claim} is kept, with the model and the checkpoints")
    return name, uid
