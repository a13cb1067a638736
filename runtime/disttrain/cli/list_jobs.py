"""`disttrain list`: the jobs of a cluster as a table."""

import typer

from disttrain.cli import objects
from disttrain.cli.cluster_options import (
    AllNamespaces,
    Output,
    OutputOption,
    Selector,
    Watching,
    jobs_of,
    on_cluster,
)
from disttrain.cluster import jobs as cluster_jobs
from disttrain.cluster import resources, server_tables
from disttrain.cluster.resources import JOBS
from disttrain.cluster.server_tables import Wanted
from disttrain.cluster.target import Target


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
        typer.echo(objects.text(found, Output(output)))
        return
    wide = output is Output.WIDE
    wanted = Wanted(resource=JOBS, namespace=namespace, selector=selector, wide=wide)
    table = server_tables.read(jobs.api, wanted)
    if not table.rows:
        typer.echo(f"No jobs found in {namespace or 'any'} namespace.", err=True)
    elif not watch:
        typer.echo(table.text)
    if watch:
        for line in server_tables.watch(jobs.api, wanted, table):
            typer.echo(line)
