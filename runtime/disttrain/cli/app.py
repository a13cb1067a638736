"""The command `disttrain`: one line per command, whose module is imported when it is called."""

import errno
import importlib
import importlib.metadata
import os
import shlex
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.cluster.errors import WrongInput
from disttrain.coordinator.errors import ManifestChanged
from disttrain.errors import DistTrainError
from disttrain.job import terminal_text
from disttrain.job.errors import InvalidManifest
from disttrain.launch.errors import (
    CheckpointsUnusable,
    NotARunFolder,
    OutputFolderInUse,
    OutputFolderUnusable,
)
from disttrain.launch.exit_code import ExitCode


class PlainUsage(TyperCommand):
    """Writes required arguments as they are typed; typer puts them into braces."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # its type is private to typer
        """The parts after the command's name."""
        pieces: list[str] = super().collect_usage_pieces(ctx)
        return [piece.replace("{", "").replace("}", "") for piece in pieces]


COMMANDS = (
    ("run", "run:run", "Train a job with processes of this machine and show how it goes."),
    (
        "resume",
        "resume:resume",
        "Go on with the run in the folder DIR from its newest checkpoint, or with a suspended job.",
    ),
    (
        "status",
        "status:status",
        "Show how the run in DIR is, and in one sentence what limits its speed.",
    ),
    ("export", "checkpoints:export", "Write the model of a checkpoint as one safetensors file."),
    (
        "inspect",
        "checkpoints:inspect",
        "Show a checkpoint: its job, parts, files, tensors and optimizer state.",
    ),
    (
        "audit",
        "recorded_runs:audit",
        "Check the promises of the design from a run's own logs, and say what held.",
    ),
    (
        "replay",
        "recorded_runs:replay",
        "Reproduce an asynchronous run bit for bit, and say what asynchrony did.",
    ),
    (
        "evaluate",
        "checkpoint_evaluation:evaluate",
        "Evaluate a checkpoint's parameters with the task of its job, on the test split.",
    ),
    (
        "validate",
        "manifests:validate",
        "Check manifests and print everything that is wrong with them.",
    ),
    ("schema", "manifests:schema", "Print the JSON schema of manifests."),
    (
        "submit",
        "submit:submit",
        "Run a job on the cluster of the kubeconfig's context, with the code of a folder here.",
    ),
    (
        "list",
        "cluster_show:list_jobs",
        "List the jobs of a namespace with the columns of `kubectl get disttrainjobs`.",
    ),
    (
        "get",
        "cluster_job:get",
        "Show how a job is and why: conditions, progress, shards, replicas, failures, checkpoint.",
    ),
    (
        "logs",
        "logs:logs",
        "Print the logs of a job: of its coordinator, its shards and its replicas, "
        "or some of them.",
    ),
    (
        "events",
        "cluster_show:events",
        "Show the events of a job, of its pods and of what makes them, the latest last.",
    ),
    (
        "top",
        "cluster_job:top",
        "Show per pod samples per second, staleness of gradients, processor time and memory.",
    ),
    (
        "scale",
        "cluster_change:scale",
        "Change the number of replicas of jobs while they train; no sample is lost or repeated.",
    ),
    (
        "suspend",
        "cluster_change:suspend",
        "Stop all processes of jobs after a checkpoint; "
        "`disttrain resume NAME` goes on from there.",
    ),
    (
        "delete",
        "cluster_change:delete",
        "Delete jobs with everything that belongs to them but the volume with their checkpoints.",
    ),
)
"""Name, module and function below `disttrain.cli`, and the first sentence of its help."""


class Commands(TyperGroup):
    """Knows what it lists and completes from the table alone."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, _, sentence in COMMANDS:
            self.add_command(PlainUsage(name, help=sentence, rich_markup_mode=None))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # its types are private to typer
        """The command that is called, with what its module says."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, None if name is None or found is None else loaded(name), rest


# Plain help: rich would double the time of `disttrain --help`.
_PLAIN: dict[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(cls=Commands, **_PLAIN)


def loaded(name: str) -> TyperCommand:
    """A command of the table. Imports its module."""
    (place,) = (place for known, place, _ in COMMANDS if known == name)
    module, function = place.split(":")
    alone = typer.Typer(add_completion=False, **_PLAIN)
    found = getattr(importlib.import_module(f"disttrain.cli.{module}"), function)
    alone.command(name, cls=PlainUsage)(found)
    return cast(TyperCommand, get_command(alone))


_REFUSED = (
    InvalidManifest,
    WrongInput,
    NotARunFolder,
    NoCheckpoint,
    OutputFolderInUse,
    OutputFolderUnusable,
    CheckpointsUnusable,
    ManifestChanged,
)
"""Nothing was started, and nothing is until the command or the manifest is another one."""


def call(name: str) -> int:
    """Run the command line; the exit code is 2 for a bad manifest or call, 1 for failures.

    After Ctrl-C it is 130. If nobody reads what it prints it is 1, and nothing is said.
    """
    try:
        app(prog_name=name)
    except (DistTrainError, OSError) as error:
        # An OSError names the file, if that has a name: a disk is full, a folder is not to be read.
        # What is wrong with a manifest begins with its own.
        head = "" if isinstance(error, InvalidManifest) else "error: "
        typer.echo(terminal_text.lines(f"{head}{error}"), err=True)
        # No file has such a name, whatever is done about it.
        is_too_long = isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG
        is_refused = is_too_long or isinstance(error, _REFUSED)
        return ExitCode.USAGE if is_refused else ExitCode.FAILED
    except KeyboardInterrupt:
        # Before a command has begun; within one, typer answers it itself.
        return ExitCode.INTERRUPTED
    return ExitCode.COMPLETE


def complete(words: Sequence[str]) -> int:
    """Complete `kubectl disttrain WORDS...`: one word a line, and then a directive for kubectl."""
    os.environ |= {
        "_DISTTRAIN_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(["disttrain", *words]),
        "COMP_CWORD": str(len(words)),
    }
    try:
        app(prog_name="disttrain")
    except SystemExit:
        # So ends a completion; kubectl still wants to hear that file names are no choice.
        typer.echo(":4")
    return ExitCode.COMPLETE


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value.
    if wanted:
        typer.echo(f"disttrain {importlib.metadata.version('disttrain')}")
        raise typer.Exit


@app.callback()
def _disttrain(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Train PyTorch models with asynchronous parameter servers.

    Example: disttrain run job.yaml
    """
