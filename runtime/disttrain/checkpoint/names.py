"""The names of everything in a checkpoint folder; nothing else makes or takes them apart. Pure."""

import re
from enum import Enum, auto

from disttrain.transport.header import Vector

MANIFEST = "manifest.json"
COORDINATOR = "coordinator.json"

VECTOR = "vector"
"""The tensor in a file that holds one vector: it may be called otherwise in another checkpoint."""

_FOLDER = re.compile(r"[0-9]{8,19}")


class Kind(Enum):
    """What a tensor in a shard's file is."""

    VALUES = auto()
    """A vector's values."""
    STATE = auto()
    """The optimizer's state for a vector."""
    TABLE = auto()
    """Anything else that the shard remembers."""


def folder(number: int) -> str:
    """The folder of a complete checkpoint."""
    return f"{number:08d}"


def number(name: str) -> int | None:
    """The number of the checkpoint whose folder has this name; None for other folders."""
    if not _FOLDER.fullmatch(name) or folder(int(name)) != name:
        return None
    return int(name)


def staging(number: int) -> str:
    """The folder of a checkpoint that is being written."""
    return f".staging-{folder(number)}"


def removal(number: int) -> str:
    """The folder of a checkpoint that is being deleted."""
    return f".removed-{folder(number)}"


def is_leftover(name: str) -> bool:
    """Whether a folder is what an interrupted writing or deletion left."""
    return name.startswith((".staging-", ".removed-"))


def shard_file(index: int) -> str:
    """The file of one shard."""
    return f"shard-{index:05d}.safetensors"


def vector_file(content_hash: str) -> str:
    """The file of one vector, from its hash."""
    return f"vector-{content_hash.rpartition(':')[2]}.safetensors"


def vector_draft(index: int, kind: str) -> str:
    """The file of a vector of one shard while it is written."""
    return f"vector-of-{index:05d}-{kind}.safetensors"


def values(vector: Vector) -> str:
    """The tensor in a shard's file with the values of a vector."""
    return vector.name


def state(vector: Vector, kind: str) -> str:
    """The tensor with an optimizer's state of this kind ("momentum", "sum_of_squares")."""
    return f"{vector.name}.{kind}"


def kind(tensor: str) -> Kind:
    """What the tensor of this name is."""
    vector, dot, _ = tensor.partition(".")
    if vector not in Vector.__members__:
        return Kind.TABLE
    return Kind.STATE if dot else Kind.VALUES
