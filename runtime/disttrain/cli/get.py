"""`disttrain get`: one job of a cluster on a page."""

import typer

from disttrain.cli import objects
from disttrain.cli.cluster_options import (
    JobName,
    Output,
    OutputOption,
    Watching,
    jobs_of,
    on_cluster,
)
from disttrain.cluster import ages, references
from disttrain.cluster.target import Target


@on_cluster
def get(
    target: Target, name: JobName, *, output: OutputOption = None, watch: Watching = False
) -> None:
    """Show how a job is and why: conditions, progress, shards, replicas, failures, checkpoint.

    With --watch it shows the progress until the job ends, and exits like `disttrain run`.

    Example: disttrain get digits

    Example: disttrain get dtj/digits -n research --watch
    """
    jobs = jobs_of(target)
    job = jobs.get(references.name(name))
    # Both are slow to import, and the other commands do without them.
    if watch:
        from disttrain.cli import cluster_live  # noqa: PLC0415

        raise typer.Exit(cluster_live.follow(jobs, job))
    if output in {None, Output.WIDE}:
        from disttrain.cli import job_page  # noqa: PLC0415

        typer.echo(job_page.text(job, jobs.visible_pods(job), ages.now()))
    else:
        typer.echo(objects.text([job], Output(output)))
