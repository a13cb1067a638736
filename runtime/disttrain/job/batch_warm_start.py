"""What a batch method begins with, as a manifest describes it: samples by asynchronous SGD."""

from typing import Self

from pydantic import ConfigDict, Field, model_validator

from disttrain.job.downpour import Downpour, WarmStart
from disttrain.job.optimizer import Optimizer
from disttrain.job.section import EXACTLY_ONE, Count, Section, require_one
from disttrain.job.update_rules.sgd import Sgd


class BatchWarmStart(Section):
    """Downpour or plain SGD first, as in DistBelief; the method begins where it ends."""

    model_config = ConfigDict(json_schema_extra={EXACTLY_ONE: ["downpour", "sgd"]})

    samples: Count = Field(examples=[20000])
    """Samples that all replicas together process before the method begins. They count for
    `spec.stop`, as do passes over the data."""

    batch_size: Count = Field(examples=[32])
    """Samples per step of one replica."""

    downpour: Downpour | None = None
    """By all replicas. Exactly one of downpour and sgd is given."""

    sgd: Sgd | None = None
    """By replica 0 alone, each step on the parameters that the step before has left."""

    @model_validator(mode="after")
    def _is_one_method(self) -> Self:
        methods = {"downpour": self.downpour, "sgd": self.sgd}
        given = [name for name, method in methods.items() if method is not None]
        require_one(given, list(methods))
        return self

    @property
    def rule(self) -> Downpour:
        """How it is done: plain SGD is Downpour of a replica that waits for every answer."""
        if self.downpour is not None:
            return self.downpour
        return Downpour(
            max_in_flight=0,
            optimizer=Optimizer(sgd=self.sgd),
            warm_start=WarmStart(samples=self.samples),
        )
