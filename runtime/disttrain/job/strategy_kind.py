"""What a manifest says of a strategy, whichever it is."""

from abc import abstractmethod
from enum import StrEnum
from typing import ClassVar, NamedTuple

from pydantic import Field

from disttrain.job.length import Extent
from disttrain.job.schedule import Schedule
from disttrain.job.section import Count, Section

UNUSUAL_STALENESS = 10
"""Times what replicas of equal speed cause. One in a hundred gradients reaches four times that
where processes share cores."""


class Precision(StrEnum):
    """With which numbers a job computes."""

    FLOAT32 = "float32"
    """Single precision."""
    FLOAT64 = "float64"
    """Double precision: twice the memory and bytes, and many more correct digits."""


class Numbers(StrEnum):
    """Numbers of a part of the work of a job that trains in single precision."""

    FLOAT32 = "float32"
    """Single precision."""
    BFLOAT16 = "bfloat16"
    """The same range with 8 significant bits in place of 24: half of the bytes."""


class PushedNumbers(StrEnum):
    """Numbers of what replicas push after local steps."""

    FLOAT32 = "float32"
    """Single precision."""
    BFLOAT16 = "bfloat16"
    """8 significant bits in place of 24: half of the bytes."""
    INT8 = "int8"
    """Whole numbers of 8 bits, and a scale for each 128 of them: 3.9 times fewer bytes."""


class Formats(NamedTuple):
    """In which numbers the trained parameters are, and are on their way."""

    held: Precision = Precision.FLOAT32
    pushed: PushedNumbers = PushedNumbers.FLOAT32
    """Gradients, where `held` is single precision."""
    keeps_errors: bool = False
    """Whether a replica adds to its next push what rounding took from this one."""
    fetched: Numbers = Numbers.FLOAT32
    """What replicas compute with."""


class Exchanges(NamedTuple):
    """How often a replica pushes and fetches all trained parameters."""

    pushes: float = 1.0
    """For each step."""
    fetches: float = 1.0
    parts: int = 1
    """In which each is done, at different times."""


class FirstStage(Section):
    """What a job does before its strategy begins."""

    samples: Count = Field(examples=[20000])
    """Samples that all replicas together process before the method begins. They count for
    `spec.stop`, as do passes over the data."""

    batch_size: Count = Field(examples=[32])
    """Samples per step of one replica."""

    @property
    @abstractmethod
    def rule(self) -> "StrategyKind":
        """How it is done."""

    @abstractmethod
    def problem_in(self, run: Extent) -> str | None:
        """As the strategy's: with its place below the strategy, whose stage this is."""


class StrategyKind(Section):
    """What everybody asks of a strategy. Whoever carries it out finds its own side by the type."""

    name: ClassVar[str]
    # In manifests in camelCase, and in statuses.

    summary: ClassVar[str]
    # A sentence for those who choose one.

    batch_size_field: ClassVar[str] = "spec.batchSize"
    portion_size_field: ClassVar[str] = "spec.portionSize"
    # Where a manifest says how large steps and portions of a job's first stage are.

    update_rule_field: ClassVar[str] = "spec.strategy"
    # Where a manifest chooses what checkpoints call the update rule.

    rate_field: ClassVar[str] = "learningRate"
    # What to make smaller where training diverges.

    groups_parameters: ClassVar[bool] = False
    # Whether it trains parameters with different rates or weight decays, if a task wants that.

    pushes_seldom: ClassVar[bool] = False
    # Whether minutes may lie between two pushes of a replica that trains.

    makes_torch_optimizers: ClassVar[bool] = False
    # Whether each replica steps with an optimizer of torch.optim.

    has_ranks: ClassVar[bool] = False
    # Whether a replica may divide its batches among several processes.

    converges: ClassVar[bool] = False
    # Whether it may end by itself, without a condition of `spec.stop`.

    @property
    @abstractmethod
    def update_rule(self) -> str:
        """What changes the parameters, as checkpoints name it."""

    @property
    def computes_on(self) -> str:
        """The name of the vector that replicas compute with."""
        return "parameters"

    @property
    def evaluates(self) -> str:
        """The name of the vector that evaluations measure while the job trains."""
        return "parameters"

    @property
    def pushed(self) -> tuple[str, ...]:
        """Names of vectors that replicas push beside each gradient."""
        return ()

    def holding_replicas(self, replicas: int) -> int:
        """How many, from the first on, hold the job's state and write checkpoints; 0: shards do."""
        del replicas
        return 0

    def problem_in(self, run: Extent) -> str | None:
        """What of it does not fit into a run, as far as this is known; None: nothing.

        It begins with its place below the strategy.
        """
        del run
        return None

    @property
    def first_stage(self) -> FirstStage | None:
        """None: the strategy begins at once."""
        return None

    @property
    def computes_in(self) -> Precision:
        return Precision.FLOAT32

    @property
    def formats(self) -> Formats:
        return Formats(self.computes_in)

    @property
    def exchanges(self) -> Exchanges:
        return Exchanges()

    @property
    def autocasts(self) -> bool:
        """Whether models compute in bfloat16 what PyTorch takes to be safe in it."""
        return False

    @property
    def against_a_slow_network(self) -> str:
        """What in a manifest makes replicas use the network less."""
        return "larger batches"

    @property
    def planned_rate(self) -> tuple[float, Schedule] | None:
        """The full learning rate and how it changes, where the manifest says both."""
        return None

    def samples_per_step(self, batch_size: int | None) -> int:
        """What a replica computes at once, where `batch_size` is the job's."""
        assert batch_size is not None, "the rules require it"  # noqa: S101 - for ourselves.
        return batch_size
