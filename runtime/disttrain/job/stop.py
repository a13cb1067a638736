"""When a job is complete, and when its model is measured."""

from typing import Annotated

from pydantic import ConfigDict, Field

from disttrain.job.section import MOST, ZERO_IS_NONE, Count, Positive, Section


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


class Stop(Section):
    """The conditions that end the job; the first that is met completes it."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    epochs: Count | None = None
    """Passes over the training data."""

    steps: Count | None = None
    """Steps of all replicas together. Of downpour only."""

    iterations: Count | None = None
    """Iterations of the method, each of one or several evaluations. Of sandblaster only, which
    ends by its tolerances in any case."""

    samples: Count | None = None
    """Samples processed by all replicas together."""

    seconds: Positive | None = None
    """Wall-clock seconds of training."""

    target_metric: TargetMetric | None = None
    """A measure of the evaluation that is good enough."""

    def problem(self) -> str | None:
        if self.given():
            return None
        return (
            "must say when to stop: give epochs, steps, iterations, samples, seconds or "
            "targetMetric"
        )


class Evaluation(Section):
    """Measures of freshly fetched parameters during training; there is always one at the end."""

    every_epochs: Annotated[Annotated[int, Field(ge=0, le=MOST)] | None, ZERO_IS_NONE] = 1
    """Epochs between two evaluations. 0 or null: not by epochs."""

    every_seconds: Positive | None = None
    """Seconds between two evaluations. null: not by time."""

    batch_size: Count | None = None
    """Samples per forward pass. null: four times the batch size of training."""
