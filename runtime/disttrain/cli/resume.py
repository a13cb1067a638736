"""`disttrain resume`: go on with a run of this machine, or with a job of a cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from disttrain.cli import live, restart_check
from disttrain.cli.cluster_options import jobs_of, named, on_cluster
from disttrain.cluster import references
from disttrain.cluster.errors import (
    LibraryMissing,
    NoAccess,
    NotFound,
    NotInstalled,
    Unreachable,
    WrongInput,
)
from disttrain.cluster.interface import Target

Which = Annotated[
    str,
    typer.Argument(
        metavar="DIR|NAME", help="Output folder of a run, or a job of a cluster: NAME, dtj/NAME."
    ),
]


@on_cluster
def resume(target: Target, which: Which) -> None:
    """Go on with the run in the folder DIR from its newest checkpoint, or with a suspended job.

    A folder that exists is a run of this machine, which goes on by the manifest in DIR/job.yaml;
    a damaged checkpoint is refused before anything starts, as is a manifest by which it cannot be
    gone on with, and it exits like `disttrain run`. A run that is complete is left as it is, unless
    its manifest asks for more since.
    Any other NAME is a job of the cluster, as are dtj/NAME and what is named with --namespace,
    --context or --kubeconfig, whatever folders there are.

    Example: disttrain resume runs/digits-20260131-120000

    Example: disttrain resume dtj/digits
    """
    if means_cluster(which, target):
        with _said_why(target, which):
            _resume_job(target, which)
        return
    raise typer.Exit(live.resume(Path(which), restart_check.look))


def means_cluster(which: str, target: Target) -> bool:
    """Whether a job of a cluster is meant, and no folder of this machine."""
    if references.is_qualified(which) or target != Target():
        return True
    return "/" not in which and not Path(which).is_dir()


@contextmanager
def _said_why(target: Target, which: str) -> Iterator[None]:
    """Tell whoever wrote a folder's name amiss why a cluster is asked."""
    try:
        yield
    except (LibraryMissing, NoAccess, NotFound, NotInstalled, Unreachable) as error:
        if references.is_qualified(which) or target != Target():
            raise
        message = f"there is no folder {which} here, so a job of a cluster is meant: {error}"
        raise type(error)(message) from error


def _resume_job(target: Target, which: str) -> None:
    jobs = jobs_of(target)
    (name,) = jobs.choose([which])
    job = jobs.get(name)
    if not job["spec"].get("suspend"):
        phase = (job.get("status") or {}).get("phase") or "new"
        message = f"job {name} is not suspended (it is {phase}); there is nothing to resume"
        raise WrongInput(message)
    jobs.patch(name, {"suspend": False})
    typer.echo(f"{named(name)} resumed")
