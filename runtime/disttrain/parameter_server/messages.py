"""What can be said to a shard: who says it, and the body of WELCOME."""

import json
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import NamedTuple

from disttrain.parameter_server.errors import RequestRefused
from disttrain.transport.header import EMPTY, Header, Role, Verb

MOST_CHUNKS_PER_FETCH = 16
"""A FETCH that asks for more is refused: a shard never owes a peer more."""

ACKNOWLEDGE_EVERY = 2
"""A shard says PUSHED for every so many chunks of a push: the sender sees it advance."""

_LONGEST_WELCOME = 4096
_SHORTEST_CHUNK = 8
"""One element of the widest type."""


class Version(NamedTuple):
    """A shard's version: its life, and the updates in its values."""

    incarnation: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which no one asks of a version.


UNKNOWN = Version(0, 0)


class Side(IntEnum):
    """What a connection is for; in the `count` of HELLO. A sender has one of each at a shard."""

    PUSH = 1
    FETCH = 2
    UPLOAD = 3


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sends: one life of one process."""

    index: int
    incarnation: int
    role: Role = Role.REPLICA

    def header(self, verb: Verb) -> Header:
        return EMPTY._replace(
            verb=verb, role=self.role, sender=self.index, incarnation=self.incarnation
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Welcome:
    """What a shard tells in answer to HELLO, beside the header's fields."""

    holder: int
    epoch: int
    """Of the placement that it was told."""
    chunk_bytes: int
    """Payload of every chunk but the last of each vector."""


_FIELDS = tuple(Welcome.__dataclass_fields__)


def encode_welcome(welcome: Welcome) -> bytes:
    return json.dumps(asdict(welcome)).encode()


def parse_welcome(payload: bytes | memoryview) -> Welcome:
    """The payload of WELCOME. Raises RequestRefused when it is none."""
    try:
        if len(payload) > _LONGEST_WELCOME:
            message = f"{len(payload)} bytes; at most {_LONGEST_WELCOME}"
            raise ValueError(message)
        fields = json.loads(bytes(payload))
        holder, epoch, chunk_bytes = (_count(fields[name]) for name in _FIELDS)
        if chunk_bytes < _SHORTEST_CHUNK:
            message = f"chunks of {chunk_bytes} bytes"
            raise ValueError(message)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        message = f"the shard's WELCOME cannot be understood: {error}; is it of this version?"
        raise RequestRefused(message) from error
    return Welcome(holder=holder, epoch=epoch, chunk_bytes=chunk_bytes)


def _count(number: object) -> int:
    if not isinstance(number, int) or not 0 <= number < 1 << 60:
        message = f"{number!r} is no count"
        raise ValueError(message)
    return number
