"""The files that orders name, in a folder or in an object store."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from disttrain.checkpoint import copies
from disttrain.checkpoint import export as exporting
from disttrain.job import object_uri


@contextmanager
def at_hand(file: str) -> Iterator[Path]:
    """A file that is there, to read. Raises CheckpointError."""
    if object_uri.is_one(file):
        with copies.file_at(file) as copy:
            yield copy
    else:
        yield Path(file)


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


@contextmanager
def _file_for(out: str) -> Iterator[Path]:
    if object_uri.is_one(out):
        with copies.file_for(out) as file:
            yield file
    else:
        yield Path(out)
