"""What can be said to a shard: who says it, and the body of WELCOME."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from disttrain.parameter_server.errors import RequestRefused
from disttrain.transport.header import EMPTY, Header, Role, Vector, Verb

MOST_CHUNKS_PER_FETCH = 16
"""A FETCH that asks for more is refused: a shard never owes a peer more."""

ACKNOWLEDGE_EVERY = 2
"""A shard says PUSHED for every so many chunks of a push: the sender sees it advance."""

_LONGEST_WELCOME = 4096


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
        """A header with the sender's fields."""
        return EMPTY._replace(
            verb=verb, role=self.role, sender=self.index, incarnation=self.incarnation
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Welcome:
    """What a shard tells in answer to HELLO, beside the header's fields."""

    shard: int
    shards: int
    chunk_bytes: int
    """Payload of every chunk but the last of each vector."""
    elements: Mapping[Vector, int]
    """Length of the model's vectors, as the shard was told."""


def encode_welcome(welcome: Welcome) -> bytes:
    """The payload of WELCOME."""
    elements = {str(int(vector)): count for vector, count in welcome.elements.items()}
    numbers = (welcome.shard, welcome.shards, welcome.chunk_bytes)
    return json.dumps({"numbers": numbers, "elements": elements}).encode()


def parse_welcome(payload: bytes | memoryview) -> Welcome:
    """The payload of WELCOME. Raises RequestRefused when it is none."""
    try:
        if len(payload) > _LONGEST_WELCOME:
            message = f"{len(payload)} bytes; at most {_LONGEST_WELCOME}"
            raise ValueError(message)
        fields = json.loads(bytes(payload))
        shard, shards, chunk_bytes = (_count(number) for number in fields["numbers"])
        elements = {Vector(int(name)): _count(n) for name, n in fields["elements"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        message = f"the shard's WELCOME cannot be understood: {error}; is it of this version?"
        raise RequestRefused(message) from error
    return Welcome(shard=shard, shards=shards, chunk_bytes=chunk_bytes, elements=elements)


def _count(number: object) -> int:
    if not isinstance(number, int) or not 0 <= number < 1 << 60:
        message = f"{number!r} is no count"
        raise ValueError(message)
    return number
