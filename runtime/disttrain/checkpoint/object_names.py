"""The names of a job's objects; nothing else makes or takes them apart. Pure."""

from dataclasses import dataclass

from disttrain.checkpoint import names
from disttrain.checkpoint.manifest import FileEntry

DATA = "data"
"""All files of checkpoints, by what is in them: none is ever written over by something else."""
CHECKPOINTS = "checkpoints"
"""The manifests, by number: there is a checkpoint if its manifest is there."""
JOURNAL = "journal"
OWNERS = "owners"
"""Claims of coordinators on the journal, by number."""
STOPPED = "stopped"
"""Exact values of shards that were told to end."""
FAREWELLS = "farewells"
"""What members say as they leave while there is no coordinator."""
MODEL = "model.safetensors"

_SUFFIX = ".json"


def data(entry: FileEntry) -> str:
    return f"{DATA}/{names.plain_hash(entry.hash)}"


def manifest(number: int) -> str:
    return f"{CHECKPOINTS}/{names.folder(number)}{_SUFFIX}"


def number(name: str) -> int | None:
    """The number of the checkpoint whose manifest has this name; None for other objects."""
    folder, _, file = name.rpartition("/")
    if folder != CHECKPOINTS or not file.endswith(_SUFFIX):
        return None
    return names.number(file.removesuffix(_SUFFIX))


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A job's place, and one of its checkpoints."""

    uri: str
    number: int | None
    """None: the newest."""


def place_of(text: str) -> ObjectPlace:
    """The job and the checkpoint that `text` means: URI, or URI/checkpoints/NUMBER.json."""
    folder, _, file = text.rstrip("/").rpartition("/")
    named = number(f"{CHECKPOINTS}/{file}")
    if named is None or not folder.endswith(f"/{CHECKPOINTS}"):
        return ObjectPlace(text.rstrip("/"), None)
    return ObjectPlace(folder.removesuffix(f"/{CHECKPOINTS}"), named)
