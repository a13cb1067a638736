"""What a strategy does in a replica: the part of its life that is not the same for all."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import nn

from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.messages import Joined
from disttrain.coordinator.protocol.orders import Checkpoint, OrderFailed, Result
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job.spec import Spec
from disttrain.job.strategy_kind import StrategyKind
from disttrain.parameter_server.client import Versions
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.ledger import SILENT, Ledger
from disttrain.replica.membership import Membership
from disttrain.replica.prepared import Prepared
from disttrain.replica.transfers import Transfers


class Surroundings(NamedTuple):
    """What a training works with."""

    spec: Spec
    """The job's, or of a stage of it as a job of its own."""
    prepared: Prepared
    membership: Membership
    joined: Joined


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """What one stage of a job leaves to the next one."""

    model: FlatModel
    pushes: Transfers
    """Where pushes are noted."""
    fetches: Transfers


class Training(ABC):
    """One life of a replica computes gradients for the shards, or for itself.

    Belongs to the compute thread; `report` and `progress` may be asked for by any.
    """

    of: ClassVar[type[StrategyKind]]
    """The manifest's type for it."""

    pushes: Transfers
    """Of gradients to the shards."""
    fetches: Transfers
    """Of parameters from the shards."""
    ledger: Ledger = SILENT

    @abstractmethod
    def __init__(self, given: Surroundings, before: Handover | None) -> None: ...

    @staticmethod
    def check_model(model: nn.Module) -> None:
        """Raises ModelError for one that it cannot train."""
        del model

    @abstractmethod
    def begin(self, meanwhile: Callable[[], None]) -> None:
        """Take over the holders' values; `meanwhile()` is called until they are there."""

    @abstractmethod
    def train_until(self, ends: Callable[[], bool]) -> None:
        """Compute what the coordinator gives out, until `ends()` is true between two steps."""

    @abstractmethod
    def drain(self) -> None:
        """Begin nothing more; return when the holders have all that was computed. Raises Halted."""

    def upload(self, shards: tuple[int, ...]) -> None:
        """Send the model's present values to these shards; return when they have them."""
        raise NotImplementedError

    def write_part(self, order: Checkpoint) -> Result:
        """Write a part of a checkpoint, of a replica that holds some of the job's state."""
        return OrderFailed(message=f"a replica holds nothing that checkpoint {order.number} wants")

    def fetch_now(self) -> Versions:
        """Give the model the shards' present values; their versions. Raises Halted."""
        return ()

    def evaluated(self) -> None:  # noqa: B027 - to most it makes no difference.
        """The values of `fetch_now` were measured, while the other replicas went on."""

    def release(self) -> Handover:
        """End the threads, after `drain`: what is left is for the next stage's training."""
        raise NotImplementedError

    @abstractmethod
    def progress(self) -> Progress:
        """How far the holders are with what was computed."""

    @abstractmethod
    def report(self) -> ReplicaReport:
        """The counters as they are now."""

    @abstractmethod
    def close(self) -> None:
        """End the threads; what is under way is not waited for long."""
