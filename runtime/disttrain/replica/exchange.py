"""What the push and fetch threads need of the parameter server's client."""

from collections.abc import Collection, Mapping
from typing import Protocol, TypeAlias

from disttrain.parameter_server.client import FetchResult, Push, PushResult, Stage, Version
from disttrain.state.vector import Vector
from disttrain.transport.interface import Buffer

Versions: TypeAlias = tuple[Version, ...]
"""Of every shard."""


class PushSide(Protocol):
    """The half that pushes: `PushClient`. Belongs to the push thread, except `stop`."""

    def push(self, push: Push) -> list[PushResult]:
        """Send one gradient; blocks until every shard has answered."""
        ...

    def upload(self, values: Mapping[Vector, Buffer], shards: Collection[int]) -> None:
        """Send initial values; blocks until these shards have stored them."""
        ...

    def stop(self) -> None:
        """End what is under way with an error; any thread."""
        ...

    def close(self) -> None:
        """Drop what was not sent."""
        ...


class FetchSide(Protocol):
    """The half that fetches: `FetchClient`. Belongs to the fetch thread, except `stop`."""

    def fetch(self, into: Mapping[Vector, Buffer]) -> FetchResult:
        """Fill the buffers; blocks until every shard has answered."""
        ...

    def stop(self) -> None:
        """End what is under way with an error; any thread."""
        ...

    def close(self) -> None:
        """Drop what was not sent."""
        ...


class StageSide(Protocol):
    """The half that pushes, for a batch method: `PushClient`. As `PushSide`."""

    def stage(self, stage: Stage) -> tuple[int, ...]:
        """Send a group's gradient; blocks until every shard has it: their incarnations."""
        ...

    def upload(self, values: Mapping[Vector, Buffer], shards: Collection[int]) -> None:
        """As `PushSide.upload`."""
        ...

    def stop(self) -> None:
        """As `PushSide.stop`."""
        ...

    def close(self) -> None:
        """As `PushSide.close`."""
        ...


class TrialSide(FetchSide, Protocol):
    """The half that fetches, for a batch method: `FetchClient`. As `FetchSide`."""

    def fetch_trial(self, evaluation: int, trial: Vector, into: Buffer) -> None:
        """Fill the buffer with an evaluation's point; blocks until every shard has answered."""
        ...
