"""What a strategy does in a replica: the part of its life that is not the same for all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.parameter_server.client import Versions
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.ledger import Ledger
from disttrain.replica.transfers import Transfers


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """What one stage of a job leaves to the next one."""

    model: FlatModel
    pushes: Transfers
    """Where pushes are noted."""
    fetches: Transfers


class Training(Protocol):
    """One life of a replica computes gradients for the shards.

    Belongs to the compute thread; `report` and `progress` may be asked for by any.
    """

    pushes: Transfers
    """Of gradients to the shards."""
    fetches: Transfers
    """Of parameters from the shards."""
    ledger: Ledger

    def begin(self, meanwhile: Callable[[], None]) -> None:
        """Take over the shards' values; `meanwhile()` is called until they are there."""
        ...

    def train_until(self, ends: Callable[[], bool]) -> None:
        """Compute what the coordinator gives out, until `ends()` is true between two steps."""
        ...

    def drain(self) -> None:
        """Begin nothing more; return when the shards have all that was computed. Raises Halted."""
        ...

    def upload(self, shards: tuple[int, ...]) -> None:
        """Send the model's present values to these shards; return when they have them."""
        ...

    def fetch_now(self) -> Versions:
        """Give the model the shards' present values; their versions. Raises Halted."""
        ...

    def evaluated(self) -> None:
        """The values of `fetch_now` were measured, while the other replicas went on."""
        ...

    def release(self) -> Handover:
        """End the threads, after `drain`: what is left is for the next stage's training."""
        ...

    def progress(self) -> Progress:
        """How far the shards are with what was computed."""
        ...

    def report(self) -> ReplicaReport:
        """The counters as they are now."""
        ...

    def close(self) -> None:
        """End the threads; what is under way is not waited for long."""
        ...
