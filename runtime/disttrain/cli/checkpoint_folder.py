"""Which checkpoint a person means: its own folder, or the newest of the folder that holds it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer
from pydantic import ValidationError

from disttrain.checkpoint import copies, names, stores
from disttrain.checkpoint.errors import Corrupt, NoCheckpoint
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.stores import Store
from disttrain.coordinator.journal import state
from disttrain.coordinator.journal.state import State
from disttrain.job import manifest_file, object_uri
from disttrain.job.location import Location
from disttrain.launch.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Meant:
    """One checkpoint."""

    path: Path
    """Its folder, or that of a copy of it."""
    said: str
    """Where it lies, for people."""


@contextmanager
def resolved(text: str) -> Iterator[Meant]:
    """The checkpoint that is meant; whether it is whole is not looked at.

    Raises NoCheckpoint, and CheckpointError for an object store.
    """
    if not object_uri.is_one(text):
        path = _resolve(Path(text), _location_of_run(Path(text)))
        yield Meant(path, str(path))
        return
    # A store that is away takes a minute to be given up.
    typer.echo(f"reading {text}", err=True)
    with copies.checkpoint_at(text) as copy:
        manifest = names.manifest_object(int(copy.name))
        yield Meant(copy, f"{names.place_of(text).uri}/{manifest}")


def _resolve(given: Path, location: Location | None) -> Path:
    if location is not None and location.uri:
        # The folder may be a stranger's: what it says is not asked for with this user's rights.
        raise NoCheckpoint(
            f"the run in {given} has its checkpoints at {location.uri}; "
            "name that place instead of the folder to read them from there"
        )
    if names.number(given.absolute().name) is not None or (given / names.MANIFEST).exists():
        return given.absolute()
    if given.is_file():
        raise NoCheckpoint(
            f"{given} is a file; name the folder of a checkpoint, or that of a run{_near(given)}"
        )
    if not given.exists():
        raise NoCheckpoint(f"{given}: no such folder")
    newest = stores.in_folder(given).newest_folder()
    if newest is None and location is not None:
        newest = stores.in_folder(location.folder).newest_folder()
    if newest is None:
        raise NoCheckpoint(
            f"{given} holds no checkpoint; name a folder such as runs/digits/checkpoints/00000003"
        )
    return newest


def _near(file: Path) -> str:
    """The folder that is meant, if a file of a run or of a checkpoint is given."""
    folder = file.parent
    is_one = RunFolder(folder).record.exists() or (folder / names.MANIFEST).exists()
    return f": {folder}" if is_one else ""


def require_whole(location: Location) -> Path | None:
    """The newest checkpoint of a run; None without one. Raises Corrupt.

    Of one in an object store, a copy within the run's folder, which is there until it goes on.
    """
    if not location.uri:
        newest = stores.in_folder(location.folder).newest_folder()
        return None if newest is None else stores.verify(newest).path
    kept, latest = _latest(location)
    return None if latest is None else _whole_copy(kept, latest)


def newest(location: Location) -> Path | None:
    """The newest complete checkpoint there; None without one. Its hashes are not checked."""
    _, latest = _latest(location)
    return None if latest is None else latest.path


def _latest(location: Location) -> tuple[Store, Checkpoint | None]:
    kept = stores.open_store(location)
    # Somebody may have looked at it on the way here.
    kept.drop_copies()
    return kept, kept.latest()


def _whole_copy(kept: Store, checkpoint: Checkpoint) -> Path:
    try:
        kept.bring(checkpoint)
        return stores.verify(checkpoint.path).path
    except Corrupt as error:
        reason = (
            f"of what it names, {error.file} is damaged: {error.reason}; to go on from the "
            "checkpoint before it, delete this object"
        )
        raise Corrupt(kept.place(checkpoint.manifest.number), reason) from error


def coordinator_state(checkpoint: Path) -> State | None:
    """The coordinator's part of a checkpoint; None if it cannot be read."""
    try:
        return state.from_json((checkpoint / names.COORDINATOR).read_bytes())
    except (OSError, ValidationError):
        return None


def _location_of_run(output: Path) -> Location | None:
    """Where the run in an output folder has its checkpoints; None if there is no run."""
    run = RunFolder(output)
    return run.checkpoints(manifest_file.load_job(run.job)) if run.job.exists() else None
