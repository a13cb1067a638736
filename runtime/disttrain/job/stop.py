"""When a job is complete."""

from typing import Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from disttrain.job.section import EXACTLY_ONE, Count, Positive, Section, require_one


class TargetMetric(Section):
    """A measure of the evaluation, and the value at which the job is complete."""

    model_config = ConfigDict(json_schema_extra={EXACTLY_ONE: ["atLeast", "atMost"]})

    name: str = Field(min_length=1, max_length=200, examples=["accuracy"])
    """Name of the measure, as the task returns it."""

    at_least: float | None = Field(default=None, examples=[0.97])
    """Complete when the measure is this or more. Exactly one of atLeast and atMost is given."""

    at_most: float | None = None
    """Complete when the measure is this or less."""

    @model_validator(mode="after")
    def _has_one_bound(self) -> Self:
        bounds = {"atLeast": self.at_least, "atMost": self.at_most}
        require_one([name for name, bound in bounds.items() if bound is not None], list(bounds))
        return self


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

    @model_validator(mode="after")
    def _can_stop(self) -> Self:
        if any(getattr(self, name) is not None for name in type(self).model_fields):
            return self
        raise PydanticCustomError(
            "never_stops",
            "must say when to stop: "
            "give epochs, steps, iterations, samples, seconds or targetMetric",
        )
