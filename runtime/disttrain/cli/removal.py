"""`disttrain remove`: take a joiner away from a run."""

import time
from pathlib import Path
from typing import Annotated

import typer

from disttrain.coordinator.protocol import leave_notices
from disttrain.coordinator.protocol.notices import Remove
from disttrain.job import identity, manifest_file, names, run_status
from disttrain.job.names import Role
from disttrain.job.run_status import Member
from disttrain.launch import config as launch_config
from disttrain.launch.errors import NotRemoved
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder

_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.2


def remove(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of the run.")],
    replica: Annotated[
        str, typer.Argument(metavar="REPLICA", help="As `disttrain status` names it: replica-3.")
    ],
) -> None:
    """Take a replica that has joined away from a run, for good.

    For replicas of `disttrain join` alone. What it has pushed stays, and others do the rest of its
    work. Its certificate is good for nothing any more, and its process ends. Exits with 0 when it
    is gone, 1 when the run has not done it, 2 when there is no such joiner.

    Example: disttrain remove runs/first replica-3
    """
    run = RunFolder(folder.resolve())
    run.read_record()
    found = _joiner(run, replica)
    config = launch_config.read(run.config(names.COORDINATOR))
    # Not by its incarnation: it may start again before the coordinator reads this.
    leave_notices.open_notices(config).write(Remove(place=found.place))
    if not _is_gone(run, found.place):
        typer.echo(f"{replica} is still there: see the logs in {run.logs}", err=True)
        raise typer.Exit(ExitCode.FAILED)
    typer.echo(f"{replica} is removed; others do the rest of its work")


def _joiner(run: RunFolder, replica: str) -> Member:
    """Raises NotRemoved."""
    status = run_status.read(run.status) if run.is_held() else None
    members = () if status is None else status.members
    if not members:
        raise NotRemoved(f"DIR: {run.path} is no run that trains now; there is nobody to remove")
    try:
        name = names.parse(replica)
    except ValueError:
        name = None
    own = manifest_file.load_job(run.job).spec.replicas.count
    joiners = [one.name for one in members if identity.is_joiner(one.place)]
    if name is not None and name.role is Role.REPLICA and name.index < own:
        raise NotRemoved(f"REPLICA: {replica} is the job's own; remove one that has joined")
    if replica not in joiners:
        there = f"it is one of {', '.join(joiners)}" if joiners else "nobody has joined"
        raise NotRemoved(f"REPLICA: {replica:.60} has not joined this run; {there}")
    return next(one for one in members if one.name == replica)


def _is_gone(run: RunFolder, place: str) -> bool:
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end and run.is_held():
        status = run_status.read(run.status)
        if status is not None and place in status.removed:
            return True
        time.sleep(_LOOK_SECONDS)
    return False
