"""Files of an object store in a folder that lasts as long as they are needed."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from disttrain.checkpoint import names, object_names, objects
from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.checkpoint.layouts import Layout
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.stores import Store


@contextmanager
def checkpoint_at(text: str) -> Iterator[Checkpoint]:
    """The whole checkpoint that `text` means, copied into a folder; its hashes are not checked.

    Raises NoCheckpoint, Corrupt, StoreAway, StoreDenied, StoreRefused.
    """
    place = object_names.place_of(text)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Layout(objects.open_objects(place.uri), Path(folder)))
        found = _found(store, place.number)
        if found is None:
            message = (
                f"{place.uri} holds no checkpoint; name the place of a job, such as "
                "s3://bucket/prefix/NAME-UID, or one of its checkpoints/NUMBER.json"
            )
            raise NoCheckpoint(message)
        store.bring(found)
        yield found


@contextmanager
def file_at(text: str) -> Iterator[Path]:
    """A file with the content of an object. Raises as `checkpoint_at`."""
    uri, _, name = text.rpartition("/")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        objects.open_objects(uri).download(name, file)
        yield file


@contextmanager
def file_for(text: str) -> Iterator[Path]:
    """A file to write, which becomes an object when this is left without an error.

    Raises NotWritten, StoreAway, StoreDenied, StoreRefused.
    """
    uri, _, name = text.rpartition("/")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        yield file
        objects.open_objects(uri).upload(file, name)


def _found(store: Store, number: int | None) -> Checkpoint | None:
    if number is None:
        return store.latest()
    return store.read(Path(names.folder(number)))
