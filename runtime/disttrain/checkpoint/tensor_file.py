"""The header of a safetensors file: made for files that are streamed, parsed without trust. Pure.

The library's own writer wants all tensors in memory and its reader trusts the header's size, so
only the format is shared with it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LIMIT_BYTES = 8 * 1024 * 1024
"""No header is longer; 8 MiB describe about sixty thousand tensors."""

ALIGNMENT_BYTES = 64
"""The first tensor begins at a multiple of it, so that a mapped file can be computed on."""

TYPE_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4,
    "F16": 2, "BF16": 2, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
"""The format's names of element types and the bytes of one element."""

METADATA = "__metadata__"
"""Where a tensor's name would stand: the format's name for what is none."""

_LENGTH_BYTES = 8


class MalformedHeader(ValueError):
    """The bytes are no header of a safetensors file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """One tensor of a file: little-endian, row-major, at the place given by those before it."""

    name: str
    type: str
    """A key of TYPE_BYTES."""
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * TYPE_BYTES[self.type]


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """What a file says about itself."""

    tensors: tuple[Tensor, ...]
    """In the order of their data."""
    metadata: dict[str, str]
    data_start: int
    """Where the first tensor's data begin."""

    @property
    def file_bytes(self) -> int:
        return self.data_start + sum(tensor.nbytes for tensor in self.tensors)


def encode(tensors: Sequence[Tensor], metadata: Mapping[str, str]) -> bytes:
    """The beginning of a file whose tensors follow in this order."""
    content: dict[str, object] = {METADATA: dict(metadata)}
    end = 0
    for tensor in tensors:
        first, end = end, end + tensor.nbytes
        content[tensor.name] = {
            "dtype": tensor.type,
            "shape": list(tensor.shape),
            "data_offsets": [first, end],
        }
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    padding = -(_LENGTH_BYTES + len(text)) % ALIGNMENT_BYTES
    return (len(text) + padding).to_bytes(_LENGTH_BYTES, "little") + text + b" " * padding


def text_bytes(prefix: bytes, file_bytes: int) -> int:
    """The length of the header's text, from a file's first 8 bytes. Raises MalformedHeader."""
    length = int.from_bytes(prefix, "little")
    if len(prefix) < _LENGTH_BYTES or length > min(LIMIT_BYTES, file_bytes - _LENGTH_BYTES):
        message = f"its header cannot have {length} bytes in a file of {file_bytes}"
        raise MalformedHeader(message)
    return length


def parse(text: bytes) -> Header:
    """The header in this text, which follows the first 8 bytes. Raises MalformedHeader."""
    try:
        content = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        message = f"its header is no JSON: {error}"
        raise MalformedHeader(message) from error
    if not isinstance(content, dict):
        message = "its header is no JSON object"
        raise MalformedHeader(message)
    metadata = _metadata(content.pop(METADATA, {}))
    found = sorted((_entry(name, entry) for name, entry in content.items()), key=lambda e: e[0])
    _check_contiguous([place for place, _ in found])
    return Header(
        tensors=tuple(tensor for _, tensor in found),
        metadata=metadata,
        data_start=_LENGTH_BYTES + len(text),
    )


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        message = "a name occurs twice"
        raise MalformedHeader(message)
    return content


def _metadata(content: object) -> dict[str, str]:
    if not isinstance(content, dict) or not all(isinstance(v, str) for v in content.values()):
        message = "its metadata are not all text"
        raise MalformedHeader(message)
    return content


def _entry(name: str, entry: object) -> tuple[tuple[int, int], Tensor]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        message = f"tensor {name!r} is not described by dtype, shape and data_offsets"
        raise MalformedHeader(message)
    shape, offsets = _counts(name, entry["shape"]), _counts(name, entry["data_offsets"])
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in TYPE_BYTES:
        message = f"tensor {name!r} has the unknown type {entry['dtype']!r}"
        raise MalformedHeader(message)
    tensor = Tensor(name=name, type=entry["dtype"], shape=shape)
    if len(offsets) != 2 or offsets[1] - offsets[0] != tensor.nbytes:
        message = f"tensor {name!r} of shape {shape} cannot lie at {offsets}"
        raise MalformedHeader(message)
    return (offsets[0], offsets[1]), tensor


def _counts(name: str, values: object) -> tuple[int, ...]:
    if not isinstance(values, list) or len(values) > 64:
        message = f"tensor {name!r} has a shape or place that is no short list"
        raise MalformedHeader(message)
    if not all(type(value) is int and 0 <= value < 2**48 for value in values):
        message = f"tensor {name!r} has a shape or place with other things than sizes"
        raise MalformedHeader(message)
    return tuple(values)


def _check_contiguous(places: Sequence[tuple[int, int]]) -> None:
    end = 0
    for first, last in places:
        if first != end:
            message = f"its data have a gap or overlap at byte {min(first, end)}"
            raise MalformedHeader(message)
        end = last
