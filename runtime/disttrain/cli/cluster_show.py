"""Tables of jobs and events: `disttrain list` and `events`."""

import re
from collections.abc import Callable

import typer

from disttrain.cli.cluster_options import (
    AllNamespaces,
    JobName,
    Output,
    OutputOption,
    Selector,
    Watching,
    job_name,
    jobs_of,
    object_text,
    on_cluster,
)
from disttrain.cluster import jobs as cluster_jobs
from disttrain.cluster import resources, server_tables
from disttrain.cluster.interface import Object, Target
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.resources import EVENTS, JOBS
from disttrain.cluster.server_tables import TableQuery
from disttrain.job import cluster_names
from disttrain.job.spec import KIND


@on_cluster
def list_jobs(
    target: Target,
    *,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    output: OutputOption = None,
    watch: Watching = False,
) -> None:
    """List the jobs of a namespace with the columns of `kubectl get disttrainjobs`.

    Example: disttrain list -A

    Example: disttrain list -n research -l team=vision --watch
    """
    jobs = jobs_of(target)
    namespace = None if all_namespaces else jobs.namespace
    if output in {Output.JSON, Output.YAML, Output.NAME}:
        request = resources.listing(JOBS, namespace, labelSelector=selector)
        found = list(cluster_jobs.items(jobs.api, request))
        typer.echo(object_text(found, Output(output)))
        return
    wide = output is Output.WIDE
    wanted = TableQuery(resource=JOBS, namespace=namespace, selector=selector, wide=wide)
    nothing = f"No jobs found in {namespace or 'any'} namespace."
    _show(jobs, wanted, nothing, watch=watch)


@on_cluster
def events(target: Target, name: JobName, *, watch: Watching = False) -> None:
    """Show the events of a job, of its pods and of what makes them, the latest last.

    Example: disttrain events digits --watch
    """
    chosen = job_name(name)
    jobs = jobs_of(target)
    jobs.get(chosen)
    wanted = TableQuery(
        resource=EVENTS, namespace=jobs.namespace, belongs=events_of(chosen), order=last_seen
    )
    nothing = f"No events of job {chosen}; the API server keeps them for an hour."
    _show(jobs, wanted, nothing, watch=watch)


def _show(jobs: Jobs, wanted: TableQuery, nothing: str, *, watch: bool) -> None:
    table = server_tables.read(jobs.api, wanted)
    if not table.rows:
        typer.echo(nothing, err=True)
    elif not watch:
        typer.echo(table.text)
    if watch:
        for line in server_tables.watch(jobs.api, wanted, table):
            typer.echo(line)


def events_of(name: str) -> Callable[[Object], bool]:
    """A test whether an event is about a job: itself, what was made for it, or a pod of it."""
    own = {
        cluster_names.service(name),
        cluster_names.shard_set(name),
        cluster_names.replica_set(name),
        cluster_names.coordinator_job(name),
        cluster_names.checkpoints_claim(name),
    }
    # A pod that is gone has no labels to look at any more, only its name.
    ending = "[a-z0-9]+"
    pods = re.compile(
        f"{re.escape(cluster_names.shard_set(name))}-[0-9]+"
        f"|{re.escape(cluster_names.coordinator_job(name))}-0-{ending}"
        # One process each, or what keeps several and each of those.
        f"|{re.escape(cluster_names.replica_set(name))}-({ending}|[0-9]+-[0-9]+)"
    )

    def belongs(event: Object) -> bool:
        about = event["involvedObject"]
        found = str(about.get("name") or "")
        if about.get("kind") == KIND:
            return found == name
        return found in own or pods.fullmatch(found) is not None

    return belongs


def last_seen(event: Object) -> str:
    """When an event was last seen, in RFC 3339; whoever wrote it chose one of several fields."""
    series = event.get("series") or {}
    moments = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return str(next((each for each in moments if each), ""))
