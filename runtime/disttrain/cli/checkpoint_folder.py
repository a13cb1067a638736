"""Which checkpoint a person means: its own folder, or the newest of the folder that holds it."""

from pathlib import Path

from disttrain.checkpoint import names, store
from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.checkpoint.store import Store
from disttrain.job import manifest_file
from disttrain.launch import locations
from disttrain.launch.run_folder import RunFolder


def resolve(given: Path) -> Path:
    """The folder of one checkpoint; whether it is whole is not looked at. Raises NoCheckpoint."""
    if names.number(given.absolute().name) is not None or (given / names.MANIFEST).exists():
        return given.absolute()
    if given.is_file():
        message = f"{given} is a file; name the folder of a checkpoint, or that of a run"
        raise NoCheckpoint(message)
    newest = Store(given).newest_folder() or _newest_of_run(RunFolder(given))
    if newest is None:
        message = (
            f"{given} holds no checkpoint; name a folder such as runs/digits/checkpoints/00000003"
        )
        raise NoCheckpoint(message)
    return newest


def require_whole(output: Path) -> Path | None:
    """The newest checkpoint of the run in an output folder; None without one. Raises Corrupt."""
    newest = _newest_of_run(RunFolder(output))
    return None if newest is None else store.verify(newest).path


def _newest_of_run(run: RunFolder) -> Path | None:
    if not run.job.exists():
        return None
    job = manifest_file.load_job(run.job)
    return Store(locations.of_run(run, job).folder).newest_folder()
