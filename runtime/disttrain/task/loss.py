"""What `Task.loss` may return beside a mean, and what it may be told about its step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import torch
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


class Reported:
    """Scalars that losses reported, added up over steps.

    Written by the compute thread; any thread may read.
    """

    def __init__(self) -> None:
        self._totals: dict[str, tuple[float, int]] = {}

    def add(self, values: Mapping[str, float]) -> None:
        """Add one step's; what is not finite is left out."""
        for name, value in values.items():
            if math.isfinite(value):
                total, steps = self._totals.get(name, (0.0, 0))
                self._totals[name] = total + value, steps + 1

    @property
    def sums(self) -> dict[str, float]:
        return {name: total for name, (total, _) in self._totals.copy().items()}

    @property
    def steps(self) -> dict[str, int]:
        """That reported each name."""
        return {name: steps for name, (_, steps) in self._totals.copy().items()}


def numbers(*scalars: Tensor) -> list[float]:
    """The values of floating-point scalars, exactly.

    They come in one transfer from the first one's device: each would wait for all of its kernels.
    """
    place = scalars[0].device
    exact = [scalar.detach().to(place, torch.float64) for scalar in scalars]
    values: list[float] = torch.stack(exact).tolist()
    return values
