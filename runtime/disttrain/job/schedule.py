"""How the learning rate changes with the samples that the job has processed."""

from itertools import pairwise
from typing import Annotated

from pydantic import Field

from disttrain.job.section import Choice, Count, Fraction, Positive, Section, WholeNumber


class Constant(Section):
    """The rate stays as it is."""


class LinearWarmup(Section):
    """The rate grows linearly from 0 and then stays."""

    samples: Count = Field(examples=[5000])
    """Samples after which the full rate is reached."""


class Steps(Section):
    """The rate is multiplied by a factor at given points."""

    at_samples: Annotated[tuple[Count, ...], Field(strict=False)] = Field(
        min_length=1, max_length=1000, examples=[[30000, 60000]]
    )
    """Samples at which the rate is multiplied by the factor, in increasing order."""

    factor: Positive = 0.1
    """What the rate is multiplied by at each point."""

    def problem(self) -> str | None:
        for before, after in pairwise(self.at_samples):
            if after <= before:
                return f"atSamples must increase, got {after} after {before}"
        return None


class Cosine(Section):
    """The rate falls along half a cosine, after an optional linear warm-up."""

    samples: Count = Field(examples=[100000])
    """Samples at which the final rate is reached, the warm-up's included."""

    final_fraction: Fraction = 0.0
    """The final rate, as a fraction of the full one."""

    warmup_samples: WholeNumber = 0
    """Samples over which the rate first grows linearly from 0; less than samples."""

    def problem(self) -> str | None:
        if self.warmup_samples < self.samples:
            return None
        return (
            f"warmupSamples must be less than samples ({self.samples}), got {self.warmup_samples}"
        )


class Schedule(Choice[Constant | LinearWarmup | Steps | Cosine]):
    """Exactly one schedule of the learning rate, by samples processed in the whole job."""

    constant: Constant | None = None
    """No change. Written `constant: {}`."""

    linear_warmup: LinearWarmup | None = None
    """Grow linearly from 0, then stay."""

    steps: Steps | None = None
    """Multiply by a factor at given points."""

    cosine: Cosine | None = None
    """Fall along half a cosine."""
