"""`disttrain events`: what happened to a job of a cluster, in order."""

import re
from collections.abc import Callable
from dataclasses import replace

import typer

from disttrain.cli.cluster_options import JobName, Watching, jobs_of, on_cluster
from disttrain.cluster import references, server_tables
from disttrain.cluster.interface import Object
from disttrain.cluster.resources import EVENTS
from disttrain.cluster.server_tables import Wanted
from disttrain.cluster.target import Target
from disttrain.job import cluster_names
from disttrain.job.spec import KIND


@on_cluster
def events(target: Target, name: JobName, *, watch: Watching = False) -> None:
    """Show the events of a job, of its pods and of what makes them, the latest last.

    Example: disttrain events digits --watch
    """
    jobs = jobs_of(target)
    chosen = references.name(name)
    jobs.get(chosen)
    belongs = of_job(chosen)
    wanted = Wanted(resource=EVENTS, namespace=jobs.namespace, belongs=belongs)
    found = server_tables.read(jobs.api, wanted)
    ordered = sorted(found.rows, key=lambda row: last_seen(row.found))
    table = replace(found, rows=ordered)
    if not table.rows:
        typer.echo(f"No events of job {chosen}; the API server keeps them for an hour.", err=True)
    elif not watch:
        typer.echo(table.text)
    if watch:
        for line in server_tables.watch(jobs.api, wanted, table):
            typer.echo(line)


def of_job(name: str) -> Callable[[Object], bool]:
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
        f"|{re.escape(cluster_names.replica_set(name))}-{ending}"
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
