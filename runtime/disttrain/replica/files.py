"""The files that orders name, in a folder or in an object store."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from disttrain.checkpoint import copies
from disttrain.checkpoint import export as exporting
from disttrain.job import object_uri


def at_hand(file: str) -> AbstractContextManager[Path]:
    """A file that is there, to read. Entering raises CheckpointError."""
    return copies.file_at(file) if object_uri.is_one(file) else nullcontext(Path(file))


def export(checkpoint: str, out: str) -> None:
    """Write the model of a checkpoint, as `checkpoint.export`. Raises CheckpointError."""
    with _checkpoint(checkpoint) as folder, _file_for(out) as file:
        exporting.export(folder, file)


@contextmanager
def _checkpoint(place: str) -> Iterator[Path]:
    if object_uri.is_one(place):
        with copies.checkpoint_at(place) as copy:
            yield copy.path
    else:
        yield Path(place)


def _file_for(out: str) -> AbstractContextManager[Path]:
    return copies.file_for(out) if object_uri.is_one(out) else nullcontext(Path(out))
