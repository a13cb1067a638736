"""Which checkpoint a person means: its own folder, or the newest of the folder that holds it."""

from pathlib import Path

from disttrain.checkpoint import names
from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.checkpoint.store import Store
from disttrain.job import manifest_file
from disttrain.launch import config
from disttrain.launch.run_folder import RunFolder


def resolve(given: Path) -> Path:
    """The folder of one checkpoint; whether it is whole is not looked at. Raises NoCheckpoint."""
    if names.number(given.absolute().name) is not None or (given / names.MANIFEST).exists():
        return given.absolute()
    for folder in (given, *_of_run(RunFolder(given))):
        newest = Store(folder).newest_folder()
        if newest is not None:
            return newest
    message = f"{given} holds no checkpoint; name a folder such as runs/digits/checkpoints/00000003"
    raise NoCheckpoint(message)


def _of_run(run: RunFolder) -> tuple[Path, ...]:
    """Where a run puts its checkpoints; nothing if this is no output folder."""
    if not run.job.exists():
        return ()
    return (config.checkpoint_folder(manifest_file.load_job(run.job), run.path.absolute()),)
