"""RMSprop in a manifest."""

import math
from typing import Annotated

from pydantic import Field

from disttrain.job.section import Positive
from disttrain.job.update_rule import UpdateRule, full_first_steps, step_of_usual_size

MEAN = "mean"
"""What is kept only if `centered`."""


class RmsProp(UpdateRule):
    """RMSprop: the rate over the root of a running mean of squared gradients, per parameter.

    As torch.optim.RMSprop without momentum.
    """

    name = "rmsprop"
    kept = ("mean_of_squares",)
    adapts = True
    zero_is_a_step = True

    alpha: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """Fraction of the mean that is kept per update."""

    epsilon: Positive = 1e-8
    """Added to the root."""

    centered: bool = False
    """Divide by the root of the gradients' variance instead: the mean of squares less the square of
    the mean. The shards then keep one more vector as long as the parameters."""

    def problem(self) -> str | None:
        if self.centered and not self.alpha:
            return "alpha is 0, and of one gradient centered knows no variance; set alpha: 0.99"
        return super().problem()

    @property
    def initial_state(self) -> dict[str, float]:
        state = super().initial_state
        return {**state, MEAN: 0.0} if self.centered else state

    @property
    def local_learning_rate(self) -> float:
        # The means lie on the shards; a replica would only guess them.
        return 0.0

    def hasty_beginning(self, replicas: int) -> str | None:
        # The means begin with 0, so that the first root is too small by this.
        root = math.sqrt(1 - self.alpha) * (math.sqrt(self.alpha) if self.centered else 1.0)
        return full_first_steps(self, replicas, self.learning_rate / root)

    def effect_of_sums(self, steps: int) -> str:
        return step_of_usual_size(steps)
