"""What a strategy is on a shard, which knows nothing else of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

from disttrain.coordinator.protocol import orders
from disttrain.holder.values import Values
from disttrain.job.spec import Spec
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.state import Answer, Refused, ShardState
from disttrain.state.share import Part, Share
from disttrain.transport.header import Header

Answers: TypeAlias = Iterable[Answer]
Handler: TypeAlias = Callable[[Header, memoryview], Answers]
"""Raises Refused for what is not carried out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchFigures:
    """What a batch method has taken since the process started, for metrics."""

    staged_bytes: int = 0
    """Memory now of gradients that are not committed."""
    orders: int = 0
    """Carried out."""
    order_seconds: float = 0.0
    """Spent on them."""


class HolderSide(ABC):
    """A stage of the job on one shard; all of its stages have one state and the same records."""

    of: ClassVar[type[Any]]
    """The manifest's type for it."""

    keeps_updates: ClassVar[bool] = True
    """Whether what was applied since the last checkpoint is of use to this shard's next life."""

    takes_model_from: ClassVar[frozenset[str]] = frozenset()
    """Names of update rules of whose checkpoints it takes the model's values, and no state."""

    values: Values
    """The shard's, from `begin` on."""

    def __init__(self, config: Any, state: ShardState, records: Records) -> None:
        """`config`: the update rule or method, as the manifest has it."""
        self.config = config
        self.state = state
        self.records = records
        self.handlers: dict[int, Handler] = {}
        """Of its own verbs. They are asked once the initial values are complete."""

    @classmethod
    @abstractmethod
    def made(cls, stage: Spec, state: ShardState, records: Records) -> Self: ...

    @staticmethod
    @abstractmethod
    def room(config: Any, share: Share, description: Mapping[str, str]) -> Values:
        """For the state that a checkpoint describes; {}: the values that it begins with."""

    def begin(
        self, values: Values, description: Mapping[str, str], returned_to: int | None
    ) -> None:
        """Begin with values that are new, or were read from a checkpoint with this description.

        `returned_to`: the number of the checkpoint to which a living shard went back.
        """
        del description, returned_to
        self.values = values

    @abstractmethod
    def drop(self, life: SenderLife) -> None:
        """Forget what is kept of this life of a sender and of earlier ones."""

    def carry_out(self, order: orders.Order) -> orders.Result:
        """An order that is the strategy's own."""
        return orders.OrderFailed(message=f"a shard does not know {order.kind}")

    def unfetchable(self, header: Header) -> Refused | None:
        """Why something is not to be had now; None: it may be."""
        del header
        return None

    def served(self, header: Header, part: Part) -> memoryview:
        """What the sender of a FETCH gets for some elements."""
        del header
        return self.values.bytes_of(part)

    def too_early(self, header: Header) -> Refused | None:
        """What to say to a request of this stage alone while an earlier one is at work."""
        del header
        return None

    @property
    def figures(self) -> BatchFigures:
        return BatchFigures()
