"""What an update rule is on a shard: its arithmetic, what it is told of a push, the schedule."""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor

from disttrain.job.schedule import Constant, Cosine, LinearWarmup, Steps
from disttrain.job.update_rule import UpdateRule

Config = TypeVar("Config", bound=UpdateRule)


class Chunk(NamedTuple):
    """Views of some elements, all as long and of one type."""

    parameters: Tensor
    state: Mapping[str, Tensor]
    """The vectors of `UpdateRule.kept`, by name."""
    of_sender: Mapping[str, Tensor]
    """The vectors of `UpdateRule.kept_of_sender` of who pushes or fetches."""
    steps: int = 0
    """Updates that these elements have had, if the rule `counts_steps`."""
    decay_factor: float = 1.0
    """What the weight decay is multiplied by, for a rule that takes care of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchContext:
    """What the shard knew at the first chunk of a fetch; all of its chunks get the same."""

    sender: int
    """Index of the replica."""
    mean_staleness: float
    """Of the sender's complete pushes whose staleness is known; 0 before the first of them."""
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

    of: ClassVar[type[UpdateRule]]
    """The manifest's type for it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        # Else the memory of the parameters is sent, without a copy.
        self.serves_anew = type(self).serve is not Rule.serve

    @abstractmethod
    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        """Update the chunk in place, not the gradient."""

    def serve(self, chunk: Chunk, fetch: FetchContext) -> Tensor:
        """What the sender computes with, as long as the parameters, which stay as they are."""
        del fetch
        return chunk.parameters


Factor = Callable[[int], float]
"""From the samples that a shard has seen in complete pushes to the fraction of the full rate."""


def schedule_factor(rule: Constant | LinearWarmup | Steps | Cosine) -> Factor:
    """What the full rate is multiplied by. A push's rate is decided by the samples before it."""
    match rule:
        case Constant():
            return full_rate
        case LinearWarmup():
            return lambda samples: min(1.0, samples / rule.samples)
        case Steps():
            return lambda samples: _steps(rule, samples)
        case Cosine():
            return lambda samples: _cosine(rule, samples)


def full_rate(_samples: int) -> float:
    return 1.0


def _steps(rule: Steps, samples: int) -> float:
    return float(rule.factor ** bisect_right(rule.at_samples, samples))


def _cosine(rule: Cosine, samples: int) -> float:
    if samples < rule.warmup_samples:
        return samples / rule.warmup_samples
    done = min(1.0, (samples - rule.warmup_samples) / (rule.samples - rule.warmup_samples))
    wave = (1.0 + math.cos(math.pi * done)) / 2.0
    return rule.final_fraction + (1.0 - rule.final_fraction) * wave
