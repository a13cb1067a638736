"""RMSprop in a manifest."""

import math
from typing import Annotated

from pydantic import Field

from disttrain.job.section import Positive
from disttrain.job.update_rule import UpdateRule, full_first_steps, step_of_usual_size


class RmsProp(UpdateRule):
    """RMSprop: the rate over the root of a running mean of squared gradients, per parameter.

    As torch.optim.RMSprop, neither centered nor with momentum.
    """

    name = "rmsprop"
    kept = ("mean_of_squares",)
    adapts = True
    zero_is_a_step = True

    alpha: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """Fraction of the mean that is kept per update."""

    epsilon: Positive = 1e-8
    """Added to the root."""

    @property
    def local_learning_rate(self) -> float:
        # The means lie on the shards; a replica would only guess them.
        return 0.0

    def hasty_beginning(self, replicas: int) -> str | None:
        # The mean begins with 0, so that the first root is too small by this.
        return full_first_steps(self, replicas, self.learning_rate / math.sqrt(1 - self.alpha))

    def effect_of_sums(self, steps: int) -> str:
        return step_of_usual_size(steps)
