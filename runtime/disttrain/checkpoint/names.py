"""The names of everything in a checkpoint folder; nothing else makes or takes them apart. Pure."""

import re

from disttrain.state.vector import Vector, parse

MANIFEST = "manifest.json"
COORDINATOR = "coordinator.json"

VECTOR = "vector"
"""The tensor in a file that holds one vector: it may be called otherwise in another checkpoint."""

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
    """The number of a checkpoint that is written there, in a folder or an object store."""
    found = _STAGED.fullmatch(place)
    if found is None:
        message = f"no checkpoint is written at {place}"
        raise ValueError(message)
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
    """Without the name of its algorithm."""
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
