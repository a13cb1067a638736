"""What Downpour needs of a model that is joined to the parameter server.

`Connection` is it with threads and sockets; `disttrain replay` follows a record instead.
"""

from collections.abc import Callable
from typing import Protocol

from disttrain.coordinator.protocol.fields import Position
from disttrain.parameter_server.client import FetchResult, Push
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.flat_vector import Outgoing
from disttrain.replica.ledger import Ledger
from disttrain.state.vector import Vector
from disttrain.transport.interface import Buffer


class Buffers(Protocol):
    """Where gradient buffers come from."""

    def acquire(self) -> Outgoing:
        """A gradient buffer that nobody else uses; may wait for a push's answer."""
        ...


class Pushes(Buffers, Protocol):
    """Pushes beside the step: `PushThread`, or what `disttrain replay` follows a record with."""

    def submit(self, outgoing: Outgoing, push: Push) -> None:
        """Start pushing what lies in the buffer, which comes out of `acquire` again."""
        ...

    def passed(self, position: Position) -> None:
        """Nothing is to be pushed of what came before this position, but what is submitted."""
        ...

    def wait_answered(self) -> None:
        """Return when everything submitted was answered by every shard."""
        ...


class Fetches(Protocol):
    """Fetches beside the step: `FetchThread`."""

    @property
    def last_seconds(self) -> float:
        """How long the latest fetch took."""
        ...

    def ask(
        self,
        into: Callable[[], dict[Vector, Buffer]],
        land: Callable[[], None] = ...,
        after_seconds: float | None = ...,
    ) -> None:
        """Fetch `after_seconds`, or when it is waited for: with None not before that.

        Does nothing while a fetch is under way or waits to be taken.
        """
        ...

    def take(self, within_seconds: float = ...) -> FetchResult | None:
        """What arrives within that time, once; None if nothing does. With 0 it never waits."""
        ...

    def wait(self) -> FetchResult | None:
        """What was asked for; None if nothing was."""
        ...


class JoinedModel(Protocol):
    """A model and both ways to the shards."""

    @property
    def model(self) -> FlatModel:
        """Whose parameters are exchanged."""
        ...

    @property
    def pushes(self) -> Pushes:
        """To the shards."""
        ...

    @property
    def fetches(self) -> Fetches:
        """From the shards."""
        ...

    @property
    def ledger(self) -> Ledger:
        """Where steps are logged."""
        ...
