"""`disttrain invite` and `disttrain join`: one more replica, on another machine."""

import re
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
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
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def invite(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of the run.")],
    expires: Annotated[
        str,
        typer.Option(metavar="TIME", help="For how long the token is good: 30m, 1h, 2d."),
    ] = "1h",
) -> None:
    """Print a token by which one more replica can join a run from another machine, once.

    The run must have been started with --joinable-at. Give the line to whoever shall join: the
    token is good for one replica of this run. Only a digest of it is kept.

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
    typer.echo(f"disttrain join {address} --token {token}")


def join(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="HOST:PORT of the run.")],
    token: Annotated[str, typer.Option(help="What `disttrain invite` printed there.")],
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

    This machine only dials out. Other code, another version or a token that is not good is refused
    before anything starts. Ctrl-C pushes what was trained and leaves. Exits with 0 when the job is
    over, 1 when the replica failed, 2 when it was not taken in, 130 when it was interrupted.

    Example: disttrain join 192.0.2.7:7000 --token TOKEN --task-folder digits
    """
    host, port = reach.parse("ADDRESS", address)
    shown = _token(token)
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


def _token(text: str) -> Token:
    try:
        return invitation.parse_token(text)
    except ValueError as error:
        raise NotJoinable(str(error)) from None


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        message = f"--expires: must be a number and s, m, h or d, as 30m, got '{text}'"
        raise NotJoinable(message)
    return int(found[1]) * _SECONDS[found[2]]
