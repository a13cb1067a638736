"""What Downpour needs of a model that is joined to the parameter server.

`Connection` is it with threads and sockets; `disttrain replay` follows a record instead.
"""

from collections.abc import Callable
from typing import Protocol

from disttrain.parameter_server.client import FetchResult
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.ledger import Ledger
from disttrain.replica.pushes import Pushes
from disttrain.state.vector import Vector
from disttrain.transport.interface import Buffer


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
