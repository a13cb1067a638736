"""How one job of a cluster is: `disttrain get` and `top`."""

import typer

from disttrain.cli import job_page
from disttrain.cli.cluster_options import (
    JobName,
    Output,
    OutputOption,
    Watching,
    job_name,
    jobs_of,
    object_text,
    on_cluster,
)
from disttrain.cluster import ages
from disttrain.cluster.interface import Target


@on_cluster
def get(
    target: Target, name: JobName, *, output: OutputOption = None, watch: Watching = False
) -> None:
    """Show how a job is and why: conditions, progress, shards, replicas, failures, checkpoint.

    With --watch it shows the progress until the job ends, and exits like `disttrain run`.

    Example: disttrain get digits

    Example: disttrain get dtj/digits -n research --watch
    """
    chosen = job_name(name)
    jobs = jobs_of(target)
    job = jobs.get(chosen)
    if watch:
        # The display is slow to import, and a page does without it.
        from disttrain.cli import cluster_live  # noqa: PLC0415

        raise typer.Exit(cluster_live.follow(jobs, job))
    if output in {None, Output.WIDE}:
        typer.echo(job_page.text(job, jobs.visible_pods(job), ages.now()))
    else:
        typer.echo(object_text([job], Output(output)))


@on_cluster
def top(target: Target, name: JobName) -> None:
    """Show per pod samples per second, staleness of gradients, processor time and memory.

    Samples per second are measured over two seconds.

    Example: disttrain top digits
    """
    chosen = job_name(name)
    jobs = jobs_of(target)
    from disttrain.cluster import usage  # noqa: PLC0415 - It needs the extra, as `jobs_of` does.

    found = usage.measure(jobs, jobs.get(chosen))
    typer.echo(found.text)
    for note in found.notes:
        typer.echo(note, err=True)
