"""When a job is complete, and when its model is measured."""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from disttrain.job.section import MOST, ZERO_IS_NONE, Count, NotNegative, Positive, Section


class TargetMetric(Section):
    """A measure of the evaluation, and the value at which the job is complete."""

    alternatives = ("atLeast", "atMost")

    name: str = Field(min_length=1, max_length=200, examples=["accuracy"])
    """Name of the measure, as the task returns it."""

    at_least: float | None = Field(default=None, examples=[0.97])
    """Complete when the measure is this or more. Exactly one of atLeast and atMost is given."""

    at_most: float | None = None
    """Complete when the measure is this or less."""

    def is_met(self, value: float) -> bool:
        """Whether a measure is good enough; false for one that is not a number."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most


class Better(StrEnum):
    """Which values of a measure are better."""

    HIGHER = "higher"
    """As of an accuracy."""
    LOWER = "lower"
    """As of a loss."""


def said(name: str | None) -> str:
    """The word for what decides: the name of a measure, or loss."""
    return name or "loss"


class Judged(Section):
    """What tells which of two evaluations is the better one."""

    name: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, examples=["accuracy"]
    )
    """Name of the measure, as the task returns it. null: the evaluation's loss."""

    better: Annotated[Better, Field(strict=False)] | None = None
    """Which values are better. null: higher ones of a measure, lower ones of the loss."""

    @property
    def wants_lower(self) -> bool:
        return self.better is Better.LOWER or (self.better is None and self.name is None)

    def value_of(self, measures: Mapping[str, float], loss: float | None) -> float | None:
        """What decides; None: it is no finite number, or not measured."""
        value = loss if self.name is None else measures.get(self.name)
        return value if value is not None and math.isfinite(value) else None

    def is_better(self, value: float | None, best: float | None, by: float = 0.0) -> bool:
        """Whether a value is better by more than so much. Any is better than None."""
        if value is None or best is None:
            return value is not None
        gain = best - value if self.wants_lower else value - best
        return gain > by


class Patience(Judged):
    """How long a job goes on whose evaluations find nothing better."""

    evaluations: Count = Field(examples=[5])
    """Evaluations in a row without an improvement, after which the job is complete."""

    minimum_improvement: NotNegative = 0.0
    """By how much more than this a value has to be better than the best one before."""

    def improves(self, value: float | None, best: float | None) -> bool:
        """Whether a value is better enough."""
        return self.is_better(value, best, self.minimum_improvement)


_ELSE = {
    "stop.targetMetric": "the target is never met",
    "stop.patience": "nothing ever improves",
    "evaluation.keepBest": "no model is ever kept",
}
"""What becomes of a job whose measure is not there, by the field that names it."""


class Stop(Section):
    """The conditions that end the job; the first that is met completes it."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    epochs: Count | None = None
    """Passes over the training data."""

    steps: Count | None = None
    """Steps of all replicas together. Not of sandblaster."""

    iterations: Count | None = None
    """Iterations of the method, each of one or several evaluations. Of sandblaster only, which
    ends by its tolerances in any case."""

    samples: Count | None = None
    """Samples processed by all replicas together."""

    seconds: Positive | None = None
    """Wall-clock seconds of training."""

    target_metric: TargetMetric | None = None
    """A measure of the evaluation that is good enough."""

    patience: Patience | None = None
    """Evaluations that find nothing better. The model of the job is its last one."""

    def problem(self) -> str | None:
        if self.given():
            return None
        return (
            "must say when to stop: give epochs, steps, iterations, samples, seconds, "
            "targetMetric or patience"
        )


class Evaluation(Section):
    """Measures of freshly fetched parameters during training; there is always one at the end."""

    every_epochs: Annotated[Annotated[int, Field(ge=0, le=MOST)] | None, ZERO_IS_NONE] = 1
    """Epochs between two evaluations. 0 or null: not by epochs."""

    every_seconds: Positive | None = None
    """Seconds between two evaluations. null: not by time."""

    keep_best: Judged | None = Field(default=None, examples=[{"name": "accuracy"}])
    """Have the replica write the model of the best evaluation so far, exactly as it was measured,
    to best.safetensors beside the job's model. The evaluation at the end counts too. null: it is
    not kept."""

    batch_size: Count | None = None
    """Samples per forward pass. null: four times the batch size of training."""


def measures(stop: Stop, evaluation: Evaluation | None) -> dict[str, str]:
    """The measures that the task has to have, by the fields that name them."""
    found = {
        "stop.targetMetric": stop.target_metric,
        "stop.patience": stop.patience,
        "evaluation.keepBest": None if evaluation is None else evaluation.keep_best,
    }
    return {field: by.name for field, by in found.items() if by is not None and by.name}


def missing_measure(wanted: Mapping[str, str], measured: Iterable[str]) -> str | None:
    """What to say of a task that measures only these, of those wanted; None: they are enough."""
    known = sorted(measured)
    for field, name in wanted.items():
        if name not in known:
            return (
                f"spec.{field}.name is {name!r}, and Task.measure() measures "
                f"{', '.join(known) or 'nothing'}: name one of its measures, else {_ELSE[field]}"
            )
    return None
