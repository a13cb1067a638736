"""What can be said to a shard: on which side, of which version, and the body of WELCOME."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from disttrain.checkpoint.manifest_text import first_mistake
from disttrain.parameter_server.errors import RequestRefused

MOST_CHUNKS_PER_FETCH = 16
"""A FETCH that asks for more is refused: a shard never owes a peer more."""

ACKNOWLEDGE_EVERY = 2
"""A shard says PUSHED for every so many chunks of a push: the sender sees it advance."""
MOST_PUSHES_TOLD = 8
"""Of so many pushes one may tell the samples: those before it held nothing that counts."""

_LONGEST_WELCOME = 4096
_SHORTEST_CHUNK = 8
"""One element of the widest type."""


class Version(NamedTuple):
    """A shard's version: its incarnation, and the updates in its values."""

    incarnation: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which no one asks of a version.


UNKNOWN = Version(0, 0)


class Side(IntEnum):
    """What a connection is for; in the `count` of HELLO. A sender has one of each at a shard.

    Initial values go by that for pushes.
    """

    PUSH = 1
    FETCH = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Welcome:
    """What a shard tells in answer to HELLO, beside the header's fields."""

    holder: Annotated[int, Field(ge=0, lt=1 << 60)]
    epoch: Annotated[int, Field(ge=0, lt=1 << 60)]
    """Of the placement that it was told."""
    chunk_bytes: Annotated[int, Field(ge=_SHORTEST_CHUNK, lt=1 << 60)]
    """Payload of every chunk but the last of each vector."""


_WELCOME = TypeAdapter(Welcome)


def encode_welcome(welcome: Welcome) -> bytes:
    return _WELCOME.dump_json(welcome)


def parse_welcome(payload: bytes | memoryview) -> Welcome:
    """The payload of WELCOME. Raises RequestRefused when it is none."""
    try:
        if len(payload) > _LONGEST_WELCOME:
            message = f"{len(payload)} bytes; at most {_LONGEST_WELCOME}"
            raise ValueError(message)
        return _WELCOME.validate_json(bytes(payload), strict=True)
    except (ValueError, RecursionError) as error:
        why = first_mistake(error) if isinstance(error, ValidationError) else error
        message = f"the shard's WELCOME cannot be understood: {why}; is it of this version?"
        raise RequestRefused(message) from error
