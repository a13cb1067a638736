"""SGD with momentum in a manifest."""

from typing import Annotated

from pydantic import Field

from disttrain.job.update_rule import VELOCITY_OF_SUMS, UpdateRule


class Momentum(UpdateRule):
    """Gradient descent with a velocity that is kept on the shard; Nesterov's on request."""

    name = "momentum"
    kept = ("momentum",)
    zero_is_a_step = True

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Fraction of the velocity that is kept per update."""

    nesterov: bool = False
    """Look ahead along the velocity, as torch.optim.SGD does with `nesterov=True`."""

    def effect_of_sums(self, steps: int) -> str:
        return VELOCITY_OF_SUMS.format(steps=steps)
