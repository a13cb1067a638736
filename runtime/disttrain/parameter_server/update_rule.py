"""What an update rule is on a shard: its arithmetic, and what it is told of a push."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor

from disttrain.job.shard_rule import ShardRule

Config = TypeVar("Config", bound=ShardRule)


class Chunk(NamedTuple):
    """Views of some elements, all as long and of one type."""

    parameters: Tensor
    state: Mapping[str, Tensor]
    """The vectors of `ShardRule.initial_state`, by name."""
    of_sender: Mapping[str, Tensor]
    """The vectors of `ShardRule.kept_of_sender` of who pushes or fetches."""
    steps: int = 0
    """Updates that these elements have had, if the rule `counts_steps`."""
    decay_factor: float = 1.0
    """What the weight decay is multiplied by, for a rule that takes care of it."""
    pushed: Mapping[str, Tensor] = MappingProxyType({})
    """The vectors of `ShardRule.pushed` of the push that is applied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchContext:
    """What the shard knew at the first chunk of a fetch; all of its chunks get the same."""

    sender: int
    """Index of the replica."""
    mean_staleness: float
    """Of the sender's latest pushes whose staleness is known; see `Delivered.met`."""
    steps: int
    """Updates in the values."""
    rate: float
    """The learning rate, by the schedule."""
    live_replicas: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PushContext(FetchContext):
    """The same for the first chunk of a push."""

    staleness: int
    """Updates in the values that were not in those that the gradient was computed on.

    -1: they were fetched from an earlier incarnation of the shard, so that nobody knows.
    """


class Rule(ABC, Generic[Config]):
    """One update rule.

    It works on each coordinate by itself, so that it does not matter how the vectors are cut, and
    keeps nothing per coordinate but what is in the chunk. Weight decay is in the gradient, unless
    the manifest's type says otherwise: replicas add it.
    """

    of: ClassVar[type[ShardRule]]
    """The manifest's type for it."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        """Update the chunk in place, not the gradient."""

    def serve(self, chunk: Chunk, fetch: FetchContext, out: Tensor) -> None:
        """Write what the manifest's type `serves` to `out`; the parameters stay as they are."""
        raise NotImplementedError

    @property
    def prediction_errors(self) -> Mapping[int, float]:
        """By replica; see `PredictionErrors`. Empty: nothing is predicted."""
        return {}
