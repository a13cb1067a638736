"""`disttrain invite` and `disttrain join`: one more replica, on another machine."""

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from disttrain.cli import reach, table
from disttrain.job.names import Role
from disttrain.launch import invitation
from disttrain.launch.config import LaunchConfig
from disttrain.launch.errors import NotJoinable
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.invitation import Invitation, Token
from disttrain.launch.run_folder import RunFolder

_DURATION = re.compile(r"([1-9][0-9]{0,5})(s|m|h|d)")
_VARIABLE = "DISTTRAIN_TOKEN"
_MOST_CHARACTERS = 1000
"""Of a token, so that no wrong file is read to its end."""
_STANDARD_INPUT = Path("-")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def invite(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of the run.")],
    expires: Annotated[
        str,
        typer.Option(metavar="TIME", help="For how long the token is good: 30m, 1h, 2d."),
    ] = "1h",
) -> None:
    """Print a token by which one more replica can join a run from another machine, once.

    The run must have been started with --joinable-at. Give the token to whoever shall join, over
    a way that others do not read: it is good for one replica of this run. Only a digest of it is
    kept. What to do with it is said on the standard error.

    Example: disttrain invite runs/first --expires 30m
    """
    run = RunFolder(folder.resolve())
    record = run.read_record()
    if record.reach is None or not run.is_held():
        message = (
            f"{folder}: nobody can join this run; it must run, and have been started by "
            "`disttrain run JOB.yaml --joinable-at HOST:PORT`, or resumed with that option"
        )
        raise NotJoinable(message)
    token = invitation.new_token(record.reach.key)
    kept = Invitation(
        job_uid=record.job_uid,
        key=record.reach.key,
        role=Role.REPLICA.value,
        digest=token.digest,
        expires=time.time() + _seconds(expires),
    )
    invitation.write(run.invitations, token.invitation, kept)
    address = record.reach.address.removeprefix("tcp://")
    typer.echo(str(token))
    typer.echo(f"disttrain join {address}  # There; it asks for the token.", err=True)


def join(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="HOST:PORT of the run.")],
    token: Annotated[
        str | None,
        typer.Option(help="The token itself. Whoever may list processes reads it: take a file."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the token; - is the standard input."),
    ] = None,
    task_folder: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder with the job's task, the same code as there."),
    ] = Path(),
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for logs, new or empty. Default: runs/joined-ID."),
    ] = None,
) -> None:
    """Train as one more replica of a run on another machine, by a token of `disttrain invite`.

    The token comes from --token-file, from the variable DISTTRAIN_TOKEN, or is asked for.

    This machine only dials out. Other code, another version or a token that is not good is refused
    before anything starts. Ctrl-C pushes what was trained and leaves. Exits with 0 when the job is
    over, 1 when the replica failed or was removed, 2 when it was not taken in, 130 when it was
    interrupted.

    Example: disttrain join 192.0.2.7:7000 --task-folder digits
    """
    host, port = reach.parse("ADDRESS", address)
    shown = _token(token, token_file)
    folder = RunFolder((output or Path("runs") / f"joined-{shown.invitation}").resolve())
    folder.create()
    apply: Callable[[str, int, Token, Path, Path], LaunchConfig] = table.later("join a run")
    stay: Callable[[LaunchConfig, Callable[[str], None]], ExitCode] = table.later("stay in a run")
    with ExitStack() as undo:
        # So that the next attempt finds it as this one did, whatever ends this one.
        undo.callback(shutil.rmtree, folder.path)
        config = apply(host, port, shown, task_folder.resolve(), folder.path)
        undo.pop_all()
    typer.echo(f"joins {config.job.metadata.name} at {address}; logs in {folder.logs}")
    raise typer.Exit(stay(config, typer.echo))


def _token(given: str | None, file: Path | None) -> Token:
    """Raises NotJoinable, which says where the token came from."""
    if given is not None and file is not None:
        message = "--token and --token-file are both given; keep --token-file"
        raise NotJoinable(message)
    # Whatever runs here later need not know it.
    variable = os.environ.pop(_VARIABLE, None)
    source, text = "--token", given
    if file is not None:
        source, text = "--token-file", _read(file)
    elif given is None and variable is not None:
        source, text = _VARIABLE, variable
    elif given is None:
        source, text = "token", _asked()
    try:
        return invitation.parse_token(text or "")
    except ValueError as error:
        message = f"{source}: {error}"
        raise NotJoinable(message) from None


def _read(file: Path) -> str:
    try:
        with nullcontext(sys.stdin) if file == _STANDARD_INPUT else file.open() as stream:
            return stream.read(_MOST_CHARACTERS)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        message = f"--token-file: {file} cannot be read ({why}); name the file with the token"
        raise NotJoinable(message) from error


def _asked() -> str:
    """By a line of the standard input; a terminal shows nothing of it."""
    if not sys.stdin.isatty():
        return sys.stdin.readline(_MOST_CHARACTERS)
    asked: str = typer.prompt("Token", hide_input=True, err=True)
    return asked


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        message = f"--expires: must be a number and s, m, h or d, as 30m, got '{text}'"
        raise NotJoinable(message)
    return int(found[1]) * _SECONDS[found[2]]
