"""`disttrain logs`: what the processes of a job of a cluster write."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from disttrain.cli.cluster_options import JobName, job_name, jobs_of, on_cluster
from disttrain.cluster import logs as cluster_logs
from disttrain.cluster.errors import ClusterError, WrongInput
from disttrain.cluster.interface import Object, Target
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.logs import LogLine, LogOptions
from disttrain.job.cluster_names import CONTAINER
from disttrain.job.names import Role

Roles = Annotated[
    list[Role] | None, typer.Option("--role", help="Only of this role; repeatable. Default: all.")
]
Pod = Annotated[str | None, typer.Option(metavar="NAME", help="Only of this pod.")]
Container = Annotated[
    str, typer.Option("--container", "-c", metavar="NAME", help="Container of the pods.")
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Go on until the job ends, through restarts.")
]
Tail = Annotated[
    int | None, typer.Option(min=0, metavar="LINES", help="Only the latest lines of each pod.")
]
Previous = Annotated[
    bool,
    typer.Option("--previous", "-p", help="Of the incarnation of each process before this one."),
]
MaxLogRequests = Annotated[
    int, typer.Option(min=1, metavar="LOGS", help="With --follow: the most logs to follow at once.")
]
Prefix = Annotated[
    bool | None,
    typer.Option("--prefix/--no-prefix", help="Name the pod in each line. Default: if several."),
]
Timestamps = Annotated[bool, typer.Option("--timestamps", help="Begin each line with its time.")]


@on_cluster
def logs(  # noqa: PLR0913 - One parameter per option.
    target: Target,
    name: JobName,
    *,
    role: Roles = None,
    pod: Pod = None,
    container: Container = CONTAINER,
    follow: Follow = False,
    tail: Tail = None,
    previous: Previous = False,
    max_log_requests: MaxLogRequests = cluster_logs.MOST_OPEN,
    prefix: Prefix = None,
    timestamps: Timestamps = False,
) -> None:
    """Print the logs of a job: of its coordinator, its shards and its replicas, or some of them.

    Example: disttrain logs digits --role coordinator --follow

    Example: disttrain logs digits --pod digits-shard-0 --previous --tail 20
    """
    roles = tuple(each.value for each in role or ())
    wanted = LogOptions(
        roles=roles,
        pod=pod,
        container=container,
        tail=tail,
        previous=previous,
        most_open=max_log_requests,
    )
    if previous and follow:
        raise WrongInput(
            "--previous is the log of an incarnation that has ended; it cannot be followed"
        )
    chosen = job_name(name)
    jobs = jobs_of(target)
    job = jobs.get(chosen)
    found = cluster_logs.chosen(jobs, job, wanted)
    named = (pod is None and (follow or len(found) > 1)) if prefix is None else prefix
    show = partial(_show, container=container if named else "", timestamps=timestamps)
    if follow:
        for line in cluster_logs.follow(jobs, job, wanted):
            show(line)
        return
    if not found:
        typer.echo(f"No pods of job {job['metadata']['name']} are there.", err=True)
    refused = [each for each in found if not _print(jobs, each, wanted, show)]
    if found and len(refused) == len(found):
        raise typer.Exit(1)


def _show(line: LogLine, *, container: str, timestamps: bool) -> None:
    """Print a line, with what was asked to stand before it."""
    # As kubectl has it.
    prefix = f"[pod/{line.pod}/{container}] " if container else ""
    stamp = f"{line.stamp} " if timestamps else ""
    typer.echo(f"{prefix}{stamp}{line.text}")


def _print(jobs: Jobs, pod: Object, wanted: LogOptions, show: Callable[[LogLine], None]) -> bool:
    """Print what one pod wrote; a pod without a log keeps nobody from the others."""
    try:
        for line in cluster_logs.read(jobs, pod, wanted):
            show(line)
    except ClusterError as error:
        typer.echo(f"error: pod {pod['metadata']['name']}: {error}", err=True)
        return False
    return True
