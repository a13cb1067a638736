"""What a shard saves at its stop, in an object store: the shard's file, then what it is.

The file is named by its hash, which the other has: whoever reads the one finds the other.
"""

from pathlib import Path

from disttrain.checkpoint import durable, object_names
from disttrain.checkpoint.manifest import FileEntry
from disttrain.checkpoint.objects import Objects

_LARGEST_BYTES = 65_536


def send(objects: Objects, shard: FileEntry, said: Path) -> None:
    """Upload a shard's file and the one that tells of it, beside each other in a folder.

    Raises NotWritten, StoreAway, StoreDenied; then what was saved before is still there.
    """
    name = _name(shard)
    folder = _folder(shard)
    earlier = objects.sizes(folder)
    objects.upload(said.parent / shard.name, name)
    objects.write(_said(shard.name), said.read_bytes())
    objects.delete(earlier.keys() - {name})


def bring_told(objects: Objects, shard: str, said: Path, begun: Path) -> None:
    """Copy what tells of a shard's file and lives, if it is there. Raises StoreAway, StoreDenied.

    What an earlier life has left there, and could not upload, is deleted.
    """
    there = objects.sizes(object_names.STOPPED)
    for name, file in ((_said(shard), said), (_begun(begun), begun)):
        file.unlink(missing_ok=True)
        if name in there:
            durable.make_folder(file.parent)
            file.write_bytes(objects.read(name, _LARGEST_BYTES))


def send_begun(objects: Objects, begun: Path) -> None:
    """Upload the file that tells of a life. Raises NotWritten, StoreAway, StoreDenied."""
    objects.write(_begun(begun), begun.read_bytes())


def bring(objects: Objects, shard: FileEntry, folder: Path) -> None:
    """Copy a shard's file. Raises Corrupt when it is not to be had."""
    objects.download(_name(shard), folder / shard.name, shard.bytes)


def _said(shard: str) -> str:
    return f"{object_names.STOPPED}/{shard}.json"


def _begun(begun: Path) -> str:
    return f"{object_names.STOPPED}/{begun.name}"


def _folder(shard: FileEntry) -> str:
    return f"{object_names.STOPPED}/{shard.name}"


def _name(shard: FileEntry) -> str:
    return f"{_folder(shard)}/{shard.hash.rpartition(':')[2]}"
