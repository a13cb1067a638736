"""`disttrain events`: what happened to a job of a cluster, in order."""

import typer

from disttrain.cli.cluster_options import JobName, Watching, jobs_of, on_cluster
from disttrain.cluster import ages, event_table, references
from disttrain.cluster.target import Target


@on_cluster
def events(target: Target, name: JobName, *, watch: Watching = False) -> None:
    """Show the events of a job, of its pods and of what makes them, the latest last.

    Example: disttrain events digits --watch
    """
    jobs = jobs_of(target)
    chosen = references.name(name)
    jobs.get(chosen)
    found = event_table.read(jobs, chosen)
    if found:
        typer.echo(event_table.text(found, ages.now()))
    else:
        typer.echo(f"No events of job {chosen}; the API server keeps them for an hour.", err=True)
    if watch:
        for line in event_table.watch(jobs, chosen, found):
            typer.echo(line)
