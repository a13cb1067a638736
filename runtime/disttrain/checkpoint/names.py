"""The names of files and objects of a job; nothing else makes or takes them apart. Pure."""

import re
from dataclasses import dataclass

from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.checkpoint.manifest import FileEntry
from disttrain.state.vector import Vector, parse

MANIFEST = "manifest.json"
COORDINATOR = "coordinator.json"

VECTOR = "vector"
"""The tensor in a file that holds one vector: it may be called otherwise in another checkpoint."""

DATA = "data"
"""All files of checkpoints, by what is in them: none is ever written over by something else."""
CHECKPOINTS = "checkpoints"
"""The manifests, by number: there is a checkpoint if its manifest is there."""
JOURNAL = "journal"
OWNERS = "owners"
"""Claims of coordinators on the journal, by number."""
FINAL_SNAPSHOTS = "stopped"
"""Exact values of shards that were told to end."""
FAREWELLS = "farewells"
"""What members say as they leave while there is no coordinator."""

_FOLDER = re.compile(r"[0-9]{8,19}")
_STAGED = re.compile(r"(?:.*/)?(?:\.staging-)?(?P<number>[0-9]{8,19})(?:\.json)?")


def folder(number: int) -> str:
    return f"{number:08d}"


def number(name: str) -> int | None:
    """The number of the checkpoint whose folder has this name; None for other folders."""
    if not _FOLDER.fullmatch(name) or folder(int(name)) != name:
        return None
    return int(name)


def staging(number: int) -> str:
    return f".staging-{folder(number)}"


def staged_number(place: str) -> int:
    """The number of a checkpoint that is written there, in a folder or an object store.

    Raises NoCheckpoint.
    """
    found = _STAGED.fullmatch(place)
    if found is None:
        message = f"no checkpoint is written at {place}"
        raise NoCheckpoint(message)
    return int(found["number"])


def removal(number: int) -> str:
    return f".removed-{folder(number)}"


def is_leftover(name: str) -> bool:
    return name.startswith((".staging-", ".removed-"))


def part_file(index: int) -> str:
    return f"part-{index:05d}.safetensors"


def former_part_file(index: int) -> str:
    """The same in format 1."""
    return f"shard-{index:05d}.safetensors"


def plain_hash(content_hash: str) -> str:
    return content_hash.rpartition(":")[2]


def vector_file(content_hash: str) -> str:
    return f"vector-{plain_hash(content_hash)}.safetensors"


def vector_draft(index: int, vector: Vector) -> str:
    return f"vector-of-{index:05d}-{vector.partition}-{vector.name}.safetensors"


def vector_of(tensor: str) -> Vector | None:
    """The vector whose values a tensor of a holder's file is; None: something else."""
    try:
        return parse(tensor)
    except ValueError:
        return None


def data(entry: FileEntry) -> str:
    return f"{DATA}/{plain_hash(entry.hash)}"


def manifest_object(number: int) -> str:
    return f"{CHECKPOINTS}/{folder(number)}.json"


def number_of_object(name: str) -> int | None:
    folder, _, file = name.rpartition("/")
    if folder != CHECKPOINTS or not file.endswith(".json"):
        return None
    return number(file.removesuffix(".json"))


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A job's place, and one of its checkpoints."""

    uri: str
    number: int | None
    """None: the newest."""


def place_of(text: str) -> ObjectPlace:
    """The job and the checkpoint that `text` means: URI, or URI/checkpoints/NUMBER.json."""
    folder, _, file = text.rstrip("/").rpartition("/")
    named = number_of_object(f"{CHECKPOINTS}/{file}")
    if named is None or not folder.endswith(f"/{CHECKPOINTS}"):
        return ObjectPlace(text.rstrip("/"), None)
    return ObjectPlace(folder.removesuffix(f"/{CHECKPOINTS}"), named)
