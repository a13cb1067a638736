"""What a manifest says of a strategy, whichever it is."""

from abc import abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from disttrain.job.section import Section


class Precision(StrEnum):
    """With which numbers a job computes."""

    FLOAT32 = "float32"
    """Single precision."""
    FLOAT64 = "float64"
    """Double precision: twice the memory and bytes, and many more correct digits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstStage:
    """What a job does before its strategy begins."""

    strategy: "StrategyKind"
    samples: int
    batch_size: int


class StrategyKind(Section):
    """What everybody asks of a strategy. Whoever carries it out finds its own side by the type."""

    name: ClassVar[str]
    # In manifests in camelCase, and in statuses.

    summary: ClassVar[str]
    # A sentence for those who choose one.

    holding_replicas: ClassVar[int] = 0
    # Replicas, from the first one on, that hold the job's state and write its checkpoints. 0: its
    # shards do.

    batch_size_field: ClassVar[str] = "spec.batchSize"
    portion_size_field: ClassVar[str] = "spec.portionSize"
    # Where a manifest says how large steps and portions of a job's first stage are.

    @property
    @abstractmethod
    def update_rule(self) -> str:
        """What changes the parameters, as checkpoints name it."""

    @property
    def first_stage(self) -> FirstStage | None:
        """None: the strategy begins at once."""
        return None

    @property
    def computes_in(self) -> Precision:
        """Numbers of a job's model."""
        return Precision.FLOAT32

    def samples_per_step(self, batch_size: int | None) -> int:
        """What a replica computes at once, where `batch_size` is the job's."""
        assert batch_size is not None, "the rules require it"  # noqa: S101 - for ourselves.
        return batch_size
