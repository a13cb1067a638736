"""What the push and fetch threads hand to the parameter server's client."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from disttrain.parameter_server.layout import Range
from disttrain.transport.header import Vector
from disttrain.transport.interface import Buffer

Versions: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Push:
    """One update on its way to all shards."""

    sequence: int
    gradient: Buffer
    versions: Versions
    scale: float
    samples: int
    lease: int
    lease_offset: int
    buffers: dict[Vector, Buffer]
    changed: dict[Vector, tuple[Range, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class PushResult:
    """One shard's answer."""

    version: tuple[int, int]
    staleness: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchResult:
    """What came with fetched values."""

    versions: Versions


class PushSide(Protocol):
    """The part of the client that pushes; belongs to the push thread."""

    def push(self, push: Push) -> list[PushResult]:
        """Send one gradient; blocks until every shard has answered."""
        ...

    def upload(self, values: dict[Vector, Buffer], shards: Sequence[int]) -> None:
        """Send initial values; blocks until these shards have stored them."""
        ...


class FetchSide(Protocol):
    """The part of the client that fetches; belongs to the fetch thread."""

    def fetch(self, into: dict[Vector, Buffer]) -> FetchResult:
        """Fill the buffers; blocks until every shard has answered."""
        ...
