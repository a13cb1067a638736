"""What `Task.loss` may return beside a mean, and what it may be told about its step."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """A batch's loss as a sum and what it is a sum of, where that is not the number of samples.

    For instance over tokens without padding, or over samples with weights. Then the loss of several
    batches is the sum of the sums by the sum of the counts.
    """

    sum: Tensor
    """A scalar with a gradient."""
    count: Tensor | float
    """Tokens, or the sum of the weights; 0: nothing in this batch counts."""

    @classmethod
    def mean(cls, mean: Tensor, weight: Tensor | float) -> Self:
        """The same of a weighted mean, such as that of `CrossEntropyLoss(weight=...)`."""
        return cls(sum=mean * weight, count=weight)


@dataclass(frozen=True, kw_only=True, slots=True)
class LossContext:
    """What is told to a loss that has a third parameter named `context`.

    An evaluation tells what this replica's latest step was told, and drops what is reported.
    Before the first step, and in `disttrain evaluate`, all is 0. With sandblaster all but the seed
    is 0: there the loss must be the same function at every point.
    """

    step: int = 0
    """Steps that this replica has taken since its process started."""
    epoch: int = 0
    """Of the batch."""
    samples: int = 0
    """That the job has processed, as far as this replica knows: those in the parameters that it
    computes with."""
    seed: int = 0
    """Of the batch: the same whoever computes it, in whatever run. torch's generators begin with
    it."""
    reported: dict[str, Tensor | float] = field(default_factory=dict)
    """See `report`."""

    def report(self, **scalars: Tensor | float) -> None:
        """Name scalars of this step, whose means over steps stand in metrics.jsonl."""
        self.reported.update(scalars)


@dataclass(frozen=True, slots=True)
class BatchLoss:
    """A checked loss."""

    mean: Tensor
    """With a gradient, in training."""
    sum: Tensor | None = None
    """None: the task returned a mean, each of whose samples counts alike."""
    count: Tensor | None = None
    """Beside `sum`."""
    reported: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def scalars(self) -> tuple[Tensor, ...]:
        """What `figures` wants the values of."""
        count = () if self.count is None else (self.count,)
        return (self.mean, *count, *self.reported.values())

    def figures(self, values: list[float]) -> "LossFigures":
        """The values of `scalars` by their meaning."""
        mean, *rest = values
        count = None if self.count is None else rest.pop(0)
        return LossFigures(mean, count, dict(zip(self.reported, rest, strict=True)))


@dataclass(frozen=True, slots=True)
class LossFigures:
    """A batch's loss in numbers."""

    mean: float
    count: float | None
    """None: of a plain mean."""
    reported: Mapping[str, float]
