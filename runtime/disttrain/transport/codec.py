"""Headers to bytes and back. Pure: nothing is allocated from what a header says."""

import math
import struct

from disttrain.transport.errors import MalformedMessage, Refusal
from disttrain.transport.header import (
    ELEMENT_BYTES,
    MAGIC,
    PROTOCOL_VERSION,
    Header,
    Reason,
    Role,
    Verb,
)

_PREFIX = MAGIC + struct.pack("<H", PROTOCOL_VERSION)
_STRUCT = struct.Struct("<6s BQB III QIQ BBB II QQ QQQ d q IQQQ")
HEADER_BYTES = _STRUCT.size

_LARGEST = (1 << 63) - 1
_MOST_SAMPLES = 1 << 40
"""Behind one push. Shards add them up in 64 bits."""
_VERBS = frozenset(map(int, Verb))
_ROLES = frozenset(map(int, Role))
_REASONS = frozenset(map(int, Reason))
_ELEMENT_BYTES = {int(element_type): size for element_type, size in ELEMENT_BYTES.items()}
_CHUNK_VERBS = frozenset(map(int, (Verb.UPLOAD, Verb.PUSH, Verb.FETCHED, Verb.STAGE)))
_SEGMENT_VERBS = _CHUNK_VERBS | {int(Verb.FETCH)}
_WITHOUT_PAYLOAD = frozenset(map(int, (Verb.UPLOADED, Verb.PUSHED, Verb.STAGED)))


def encode(header: Header, *, job: int, place: tuple[int, int, int, int] = (0, 0, 0, 0)) -> bytes:
    """HEADER_BYTES; ValueError if a field does not fit.

    `place` is (segment, segment_offset, payload_bytes, checksum).
    """
    try:
        return _STRUCT.pack(_PREFIX, header[0], job, *header[2:-4], *place)
    except struct.error as error:
        message = f"{header} does not fit into its bytes: {error}"
        raise ValueError(message) from error


def decode(encoded: bytes | memoryview, *, job: int) -> Header:
    """The header in HEADER_BYTES, consistent in itself. Raises only MalformedMessage."""
    prefix, *values = _STRUCT.unpack(encoded)
    if prefix != _PREFIX:
        raise MalformedMessage(Refusal.MAGIC, f"starts with {prefix!r} instead of {_PREFIX!r}")
    header = Header._make(values)
    if header.job != job:
        raise MalformedMessage(Refusal.WRONG_JOB, f"digest {header.job:016x} instead of {job:016x}")
    problem = _unknown_value(header) or _out_of_range(header) or _inconsistent(header)
    if problem:
        raise MalformedMessage(Refusal.FIELDS, problem)
    return header


def _unknown_value(header: Header) -> str:
    """The first enumerated field with a value that has no meaning."""
    if header.verb not in _VERBS:
        return f"verb {header.verb}"
    if header.role not in _ROLES:
        return f"role {header.role}"
    if header.element_type not in _ELEMENT_BYTES:
        return f"element type {header.element_type}"
    if header.reason not in _REASONS:
        return f"reason {header.reason}"
    return ""


def _out_of_range(header: Header) -> str:
    """The first number that could overflow later, or is none."""
    if not math.isfinite(header.scale):
        return f"scale {header.scale}"
    if header.verb == Verb.PUSH and header.samples >= _MOST_SAMPLES:
        return f"{header.samples} samples"
    largest = max(
        header.first,
        header.count,
        header.segment_offset,
        header.payload_bytes,
        header.sequence,
        header.version,
        header.samples,
        header.lease,
        header.lease_offset,
    )
    if largest > _LARGEST // 16:
        return f"number {largest}"
    return ""


def _inconsistent(header: Header) -> str:
    """The first contradiction between fields."""
    if header.verb in _CHUNK_VERBS:
        return _inconsistent_chunk(header)
    if header.verb in _WITHOUT_PAYLOAD and header.payload_bytes:
        return f"payload of {header.payload_bytes} bytes with verb {header.verb}"
    if header.segment and header.verb not in _SEGMENT_VERBS:
        return f"segment {header.segment} with verb {header.verb}"
    return ""


def _inconsistent_chunk(header: Header) -> str:
    if header.count * _ELEMENT_BYTES[header.element_type] != header.payload_bytes:
        return (
            f"{header.count} elements of type {header.element_type} in {header.payload_bytes} bytes"
        )
    if header.segment_offset % _ELEMENT_BYTES[header.element_type]:
        return f"offset {header.segment_offset} for elements of type {header.element_type}"
    if header.chunk >= header.chunks:
        return f"chunk {header.chunk} of {header.chunks}"
    return ""
