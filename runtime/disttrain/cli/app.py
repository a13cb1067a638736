"""The command `disttrain`: its help, its completion, its errors and exit codes."""

import errno
import importlib.metadata
import os
import shlex
from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.cli import table
from disttrain.cluster.errors import WrongInput
from disttrain.coordinator.errors import ManifestChanged
from disttrain.errors import DistTrainError
from disttrain.job import terminal_text
from disttrain.job.finding import InvalidManifest
from disttrain.launch.errors import (
    CheckpointsUnusable,
    NotARunFolder,
    NotDivisible,
    NothingToResume,
    NotJoinable,
    NotRemoved,
    NotTakenIn,
    OutputFolderInUse,
    OutputFolderUnusable,
)
from disttrain.launch.exit_code import ExitCode
from disttrain.simulation.errors import NotSimulated, WrongMachines
from disttrain.task.errors import CodeError


class PlainUsage(TyperCommand):
    """Writes required arguments as they are typed; typer puts them into braces."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # its type is private to typer
        """The parts after the command's name."""
        pieces: list[str] = super().collect_usage_pieces(ctx)
        return [piece.replace("{", "").replace("}", "") for piece in pieces]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # its type is private to typer
        """Says what is wrong with a value in the words of manifests."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            say: Callable[[BaseException | None], str | None] = table.later("say what is wrong")
            error.message = terminal_text.lines(say(error.__cause__) or error.message)
            raise


class Commands(TyperGroup):
    """Knows what it lists and completes from the table alone."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, _, sentence in table.COMMANDS:
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
    alone = typer.Typer(add_completion=False, **_PLAIN)
    alone.command(name, cls=PlainUsage)(table.command(name))
    return cast(TyperCommand, get_command(alone))


_REFUSED = (
    InvalidManifest,
    WrongInput,
    NotARunFolder,
    NothingToResume,
    NoCheckpoint,
    OutputFolderInUse,
    OutputFolderUnusable,
    CheckpointsUnusable,
    NotDivisible,
    ManifestChanged,
    NotSimulated,
    NotJoinable,
    NotTakenIn,
    NotRemoved,
    CodeError,
    WrongMachines,
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
