"""Files that a person or a command names, by path or in an object store, as files at hand.

A copy lasts as long as it is needed.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from disttrain.checkpoint import names, objects
from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.checkpoint.storage import Storage
from disttrain.checkpoint.stores import Store
from disttrain.job import object_uri


@contextmanager
def checkpoint_at(text: str) -> Iterator[Path]:
    """The folder of a checkpoint, whose hashes are not checked.

    In an object store the newest of a job is meant by the place of the job. Raises NoCheckpoint,
    Corrupt, StoreAway, StoreDenied, StoreRefused there.
    """
    if not object_uri.is_one(text):
        yield Path(text)
        return
    place = names.place_of(text)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Storage(objects.open_objects(place.uri), Path(folder)))
        named = None if place.number is None else Path(names.folder(place.number))
        found = store.latest() if named is None else store.read(named)
        if found is None:
            message = (
                f"{place.uri} holds no checkpoint; name the place of a job, such as "
                "s3://bucket/prefix/NAME-UID, or one of its checkpoints/NUMBER.json"
            )
            raise NoCheckpoint(message)
        store.bring(found)
        yield found.path


@contextmanager
def file_at(text: str) -> Iterator[Path]:
    """A file to read. Raises as `checkpoint_at`."""
    if not object_uri.is_one(text):
        yield Path(text)
        return
    uri, _, name = text.rpartition("/")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        objects.open_objects(uri).download(name, file)
        yield file


@contextmanager
def file_for(text: str) -> Iterator[Path]:
    """A file to write, which becomes an object, if one is meant, when this is left without error.

    Raises NotWritten, StoreAway, StoreDenied, StoreRefused.
    """
    if not object_uri.is_one(text):
        yield Path(text)
        return
    uri, _, name = text.rpartition("/")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        yield file
        objects.open_objects(uri).upload(file, name)
