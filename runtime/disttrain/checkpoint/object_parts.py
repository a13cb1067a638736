"""A shard's part of a checkpoint as objects, by way of files of its own.

A file's name in the store is its hash, which is known when its last byte is written; so it is
written beside, and uploaded then. What the store has already is not uploaded again.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from disttrain.checkpoint import durable, names, object_names, part_file, vector_file
from disttrain.checkpoint.manifest import FileEntry
from disttrain.checkpoint.objects import Objects
from disttrain.checkpoint.part_file import Content, Written
from disttrain.checkpoint.vector_file import OnDisk


class ObjectParts:
    """A `parts.Parts`; raises StoreAway and StoreDenied besides what that says."""

    def __init__(self, objects: Objects, folder: Path) -> None:
        self._objects = objects
        self._folder = folder
        """For files on their way; emptied before and after."""

    @cached_property
    def _there(self) -> dict[str, int]:
        return self._objects.sizes(object_names.DATA)

    def share(self, known: OnDisk) -> bool:
        return self._there.get(object_names.data(known.entry)) == known.entry.bytes

    def write_vector(self, draft: str, content: Content) -> FileEntry:
        with self._room():
            entry = vector_file.write(self._folder, draft, content)
            self._send(entry)
        return entry

    def write_part(
        self, index: int, contents: Sequence[Content], metadata: Mapping[str, str]
    ) -> Written:
        name = names.part_file(index)
        with self._room():
            written = part_file.write(self._folder / name, contents, metadata)
            self._send(FileEntry(name=name, bytes=written.bytes, hash=written.hash))
        return written

    def committed(self, number: int) -> Path:
        return self._folder.with_name(names.folder(number))

    @contextmanager
    def _room(self) -> Iterator[None]:
        shutil.rmtree(self._folder, ignore_errors=True)
        try:
            durable.make_folder(self._folder)
            yield
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _send(self, entry: FileEntry) -> None:
        name = object_names.data(entry)
        if self._there.get(name) != entry.bytes:
            self._objects.upload(self._folder / entry.name, name)
