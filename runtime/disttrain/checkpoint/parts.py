"""A shard's part of one checkpoint."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from disttrain.checkpoint import names, part_file
from disttrain.checkpoint.layouts import Layout
from disttrain.checkpoint.manifest import FileEntry
from disttrain.checkpoint.part_file import Content, Written


class Parts:
    """Belongs to the thread that writes. What it took survives the machine.

    In an object store a file is named by its hash, which is known when its last byte is written: so
    it is written beside, and uploaded then. Raises as `Blobs` do.
    """

    def __init__(self, layout: Layout, number: int) -> None:
        self._layout = layout
        self._number = number

    @cached_property
    def _there(self) -> Mapping[str, int]:
        return self._layout.staged_sizes(self._number)

    def share(self, known: FileEntry) -> bool:
        """Have a vector of an earlier checkpoint in this one, too; whether that was so."""
        return self._has(known) or self._layout.share(self._number, known)

    def write_vector(self, draft: str, content: Content) -> FileEntry:
        """As `part_file.write_vector`."""
        with self._layout.room(names.staging(self._number)) as folder:
            entry = part_file.write_vector(folder, draft, content)
            self._send(folder, entry)
        return entry

    def write_part(
        self, index: int, contents: Sequence[Content], metadata: Mapping[str, str]
    ) -> Written:
        """Write a holder's file, as `part_file.write` does."""
        name = names.part_file(index)
        with self._layout.room(names.staging(self._number)) as folder:
            written = part_file.write(folder / name, contents, metadata)
            self._send(folder, FileEntry(name=name, bytes=written.bytes, hash=written.hash))
        return written

    def _send(self, folder: Path, entry: FileEntry) -> None:
        if not self._has(entry):
            name = self._layout.staged(self._number, entry)
            self._layout.blobs.upload(folder / entry.name, name)

    def _has(self, entry: FileEntry) -> bool:
        return self._there.get(self._layout.staged(self._number, entry)) == entry.bytes
