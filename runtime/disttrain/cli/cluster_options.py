"""Options that commands on a cluster have, and forms of objects, as kubectl has them."""

import inspect
import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from disttrain.cli import table
from disttrain.cluster import resources
from disttrain.cluster.errors import WrongInput
from disttrain.cluster.interface import Api, Object, Target
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.resources import JOBS
from disttrain.errors import DistTrainError
from disttrain.job import document
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder

Options = ParamSpec("Options")

Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="Namespace, if not the context's."),
]
Context = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Context of the kubeconfig, if not the current one."),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Kubeconfig to read. Default: $KUBECONFIG, ~/.kube/config."),
]
Selector = Annotated[
    str,
    typer.Option("--selector", "-l", metavar="LABELS", help="Only those with labels, as a=b,c!=d."),
]
AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Those of all namespaces.")
]
Watching = Annotated[bool, typer.Option("--watch", "-w", help="Go on and show what changes.")]

_ADDED = {"namespace": Namespace, "context": Context, "kubeconfig": Kubeconfig}


class Output(StrEnum):
    """Forms of an object."""

    NAME = "name"
    """`KIND/NAME`."""
    JSON = "json"
    """As the API server has it."""
    YAML = "yaml"
    """The same as YAML."""
    WIDE = "wide"
    """A table with more columns."""


OutputOption = Annotated[
    Output | None, typer.Option("--output", "-o", help="Print it in this form instead.")
]


def object_text(objects: Sequence[Object], output: Output) -> str:
    """One object, or several as a List; without the notes of who wrote which field."""
    if output is Output.NAME:
        return "\n".join(named(each["metadata"]["name"]) for each in objects)
    shown = [_without_managers(each) for each in objects]
    several = {"apiVersion": "v1", "kind": "List", "items": shown}
    whole: Object = shown[0] if len(shown) == 1 else several
    if output is Output.JSON:
        return json.dumps(whole, indent=4, ensure_ascii=False)
    return document.write(whole).rstrip("\n")


def named(job: str) -> str:
    return f"{JOBS.word}/{job}"


def _without_managers(found: Object) -> Object:
    kept = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
    return {**found, "metadata": kept}


def on_cluster(
    command: Callable[Concatenate[Target, Options], None],
) -> Callable[..., None]:
    """Give a command the options that say which cluster and namespace it is about."""

    def with_options(
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: Path | None = None,
        **given: Any,
    ) -> None:
        target = Target(namespace=namespace, context=context, kubeconfig=kubeconfig)
        run: Callable[..., None] = command
        run(target, **given)

    own = list(inspect.signature(command).parameters.values())[1:]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in _ADDED.items()
    ]
    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    with_options.__annotations__ = {each.name: each.annotation for each in [*own, *added]}
    vars(with_options)["__signature__"] = inspect.Signature([*own, *added])
    return with_options


def connect(target: Target) -> Api:
    """Read the credentials; nothing is asked of the API server. Raises NoAccess, LibraryMissing."""
    open_api: Callable[[Target], Api] = table.later("open a cluster")
    return open_api(target)


def follow(jobs: Jobs, job: Object) -> ExitCode:
    """Show the job until it ends; the exit code of the command."""
    shown: Callable[[Jobs, Object], ExitCode] = table.later("follow a job")
    return shown(jobs, job)


def jobs_of(target: Target) -> Jobs:
    """The jobs of the namespace that is meant. Raises NoAccess, LibraryMissing."""
    api = connect(target)
    return Jobs(api, target.namespace or api.namespace)


def job_name(given: str) -> str:
    """The name of a job of a cluster. Raises WrongInput."""
    if "/" in given and RunFolder(Path(given)).job.exists():
        raise WrongInput(
            f"{given} is a run of this machine, and this command is for jobs of a cluster: see "
            f"`disttrain status {given}`, and its logs in {given}/logs"
        )
    return resources.job_name(given)


def _names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of jobs for the shell's completion; nothing where they cannot be had."""
    given = {name: context.params.get(name) for name in _ADDED}
    prefix, slash, start = incomplete.rpartition("/")
    try:
        found = jobs_of(Target(**given)).names()
    except DistTrainError:
        return []
    return [f"{prefix}{slash}{name}" for name in found if name.startswith(start)]


JobName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The job: NAME or dtj/NAME.", autocompletion=_names),
]
JobNames = Annotated[
    list[str],
    typer.Argument(metavar="NAME", help="The jobs: NAME or dtj/NAME.", autocompletion=_names),
]
AnyJobNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Jobs: NAME or dtj/NAME.", autocompletion=_names),
]
