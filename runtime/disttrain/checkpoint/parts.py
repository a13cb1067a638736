"""Where a shard puts its part of one checkpoint."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

from disttrain.checkpoint import names, part_file, vector_file
from disttrain.checkpoint.manifest import FileEntry
from disttrain.checkpoint.part_file import Content, Written
from disttrain.checkpoint.store import Store
from disttrain.checkpoint.vector_file import OnDisk


class Parts(Protocol):
    """Belongs to the thread that writes. What it took survives the machine."""

    def share(self, known: OnDisk) -> bool:
        """Have a vector of an earlier checkpoint in this one, too; whether that was so."""

    def write_vector(self, draft: str, content: Content) -> FileEntry:
        """Write a vector into a file of its own; `draft` as in `vector_file`. Raises NotWritten."""

    def write_part(
        self, index: int, contents: Sequence[Content], metadata: Mapping[str, str]
    ) -> Written:
        """Write a holder's file, as `part_file.write` does. Raises NotWritten."""

    def committed(self, number: int) -> Path:
        """The folder of the checkpoint once it has this number."""


class FolderParts:
    """Into the staging folder of a store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _earlier(self) -> tuple[Path, ...]:
        return Store(self._folder.parent).folders()

    def share(self, known: OnDisk) -> bool:
        return vector_file.link(known.entry, (known.folder, *self._earlier), self._folder)

    def write_vector(self, draft: str, content: Content) -> FileEntry:
        return vector_file.write(self._folder, draft, content)

    def write_part(
        self, index: int, contents: Sequence[Content], metadata: Mapping[str, str]
    ) -> Written:
        return part_file.write(self._folder / names.part_file(index), contents, metadata)

    def committed(self, number: int) -> Path:
        return self._folder.with_name(names.folder(number))
