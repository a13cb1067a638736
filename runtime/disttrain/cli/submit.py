"""`disttrain submit`: run a job on a cluster."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from disttrain.cli import cluster_options
from disttrain.cli.cluster_options import Output, named, object_text, on_cluster
from disttrain.cli.manifests import Assignments
from disttrain.cluster import manifests, submission
from disttrain.cluster.interface import Object, Target
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.manifests import JobRequest
from disttrain.cluster.submission import DryRun
from disttrain.job import manifest_file

Manifest = Annotated[
    Path, typer.Argument(metavar="JOB.yaml", help="Manifest of the job; - is the standard input.")
]
CodeFolder = Annotated[
    Path | None,
    typer.Option(
        "--code",
        metavar="DIR",
        help="Folder with the task's files: packed into a ConfigMap of the job's own, which is "
        "deleted with it.",
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Show how it goes until it ends; exit like `disttrain run`.")
]
DryRunOption = Annotated[
    DryRun, typer.Option("--dry-run", help="Make nothing; server: let the API server check it.")
]


class Form(StrEnum):
    """Forms in which the job is printed: those of an object, none of a table."""

    NAME = Output.NAME
    JSON = Output.JSON
    YAML = Output.YAML


OutputOption = Annotated[
    Form | None, typer.Option("--output", "-o", help="Print the job in this form.")
]


@on_cluster
def submit(  # noqa: PLR0913 - One parameter per option.
    target: Target,
    manifest: Manifest,
    *,
    code: CodeFolder = None,
    assignments: Assignments = None,
    wait: Wait = False,
    dry_run: DryRunOption = DryRun.NONE,
    output: OutputOption = None,
) -> None:
    """Run a job on the cluster of the kubeconfig's context, with the code of a folder here.

    The manifest's metadata may give a generateName instead of a name. Exits with 0 when the job
    is made, with 2 when its manifest or its code is refused, and with --wait like `disttrain run`.

    Example: disttrain submit job.yaml --code . --wait

    Example: disttrain submit job.yaml --set spec.replicas.count=8 --dry-run=server
    """
    text = manifest_file.read_text(manifest)
    request = manifests.parse(text, str(manifest), assignments or ())
    for warning in request.warnings:
        typer.echo(warning, err=True)
    packed = submission.read_code(request, code)
    if dry_run is DryRun.CLIENT:
        namespace = manifests.namespace(request, target.namespace, "default")
        made = request.manifest(namespace, submission.code_name(request, packed))
        _show(made, output, " (dry run)")
        return
    jobs = _jobs(target, request)
    done = submission.submit(jobs, request, packed, dry_run=dry_run is DryRun.SERVER)
    for note in done.notes:
        typer.echo(note, err=output is not None)
    _show(done.job, output, " (server dry run)" if dry_run is DryRun.SERVER else "")
    if wait and dry_run is DryRun.NONE:
        raise typer.Exit(cluster_options.follow(jobs, done.job))


def _jobs(target: Target, request: JobRequest) -> Jobs:
    api = cluster_options.connect(target)
    return Jobs(api, manifests.namespace(request, target.namespace, api.namespace))


def _show(job: Object, output: Form | None, how: str) -> None:
    if output is None:
        typer.echo(f"{named(job['metadata']['name'])} created{how}")
    else:
        typer.echo(object_text([job], Output(output)))
