"""The outer rule of DiLoCo in a manifest."""

from typing import Annotated

from pydantic import Field

from disttrain.job.outer_rule import OuterRule
from disttrain.job.section import Positive


class Nesterov(OuterRule):
    """Takes each difference for a gradient, and steps with Nesterov's momentum.

    After Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models",
    2023, but with each push by itself. The velocity is kept on the shards.
    """

    name = "nesterov"
    kept = ("velocity",)

    learning_rate: Positive = 0.7
    """What a difference is multiplied by, after it was divided by the number of live replicas."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Fraction of the velocity that is kept per push. Many replicas want a smaller one, since each
    of their pushes is a step of the velocity."""
