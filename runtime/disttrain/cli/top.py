"""`disttrain top`: what the pods of a job of a cluster do and use."""

import typer

from disttrain.cli.cluster_options import JobName, jobs_of, on_cluster
from disttrain.cluster import references
from disttrain.cluster.target import Target


@on_cluster
def top(target: Target, name: JobName) -> None:
    """Show per pod samples per second, staleness of gradients, processor time and memory.

    Samples per second are measured over two seconds.

    Example: disttrain top digits
    """
    jobs = jobs_of(target)
    from disttrain.cluster import usage  # noqa: PLC0415 - It needs the extra, as `jobs_of` does.

    found = usage.measure(jobs, jobs.get(references.name(name)))
    typer.echo(usage.text(found))
    for note in found.notes:
        typer.echo(note, err=True)
