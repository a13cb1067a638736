"""A vector in a file of its own, named by its hash: written once, and shared by later checkpoints.

Every checkpoint that has the vector has its own name for the file (a hard link), in its own folder.
So each folder is whole by itself and can be copied or deleted like any other, and the file is gone
with the last checkpoint that has it. Where links are not to be had, the vector is written again.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from disttrain.checkpoint import names, part_file, reading
from disttrain.checkpoint.durable import DurableFile
from disttrain.checkpoint.errors import Corrupt
from disttrain.checkpoint.manifest import FileEntry
from disttrain.checkpoint.part_file import Content


@dataclass(frozen=True, kw_only=True, slots=True)
class OnDisk:
    """A vector's file, and a folder that had it, unless that checkpoint was given up."""

    entry: FileEntry
    folder: Path


def write(folder: Path, draft: str, content: Content) -> FileEntry:
    """Write a vector; its tensor is called `names.VECTOR`. Raises NotWritten.

    `draft`: what the file is called until its hash is known; others write into the folder, too.
    """
    with DurableFile(folder / draft, content.tensor.nbytes) as file:
        written = part_file.stream(file, [content], {})
        file.path = folder / names.vector_file(written.hash)
    return FileEntry(name=file.path.name, bytes=written.bytes, hash=written.hash)


def link(entry: FileEntry, sources: Iterable[Path], folder: Path) -> bool:
    """Give a file that is in one of the sources a name in the folder, too; whether that was so.

    Nothing of it is read but its length. The name is on disk when the folder is.
    """
    return any(_linked(source / entry.name, entry, folder / entry.name) for source in sources)


def _linked(source: Path, entry: FileEntry, target: Path) -> bool:
    try:
        reading.check_length(source, entry)
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return True  # Another vector has the same elements.
    except (Corrupt, OSError):
        return False
    return True
