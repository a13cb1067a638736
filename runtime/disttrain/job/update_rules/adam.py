"""Adam in a manifest."""

from typing import Annotated

from pydantic import Field

from disttrain.job.section import Positive
from disttrain.job.update_rule import UpdateRule, full_first_steps, step_of_usual_size


class Adam(UpdateRule):
    """Adam: the rate times a running mean of gradients over the root of that of their squares.

    Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015. Both means begin with 0 and
    are corrected for that by how many updates a parameter has had, from whichever replica.
    """

    name = "adam"
    kept = ("first_moment", "second_moment")
    adapts = True
    zero_is_a_step = True
    counts_steps = True

    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Fraction of the mean of gradients that is kept per update. It is a velocity: a smaller one
    suits many replicas."""

    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Fraction of the mean of their squares that is kept per update."""

    epsilon: Positive = 1e-8
    """Added to the root."""

    @property
    def local_learning_rate(self) -> float:
        # Both means lie on the shards; a replica would only guess them.
        return 0.0

    def hasty_beginning(self, replicas: int) -> str | None:
        return full_first_steps(self, replicas, self.learning_rate)

    def effect_of_sums(self, steps: int) -> str:
        return step_of_usual_size(steps)
