"""Momentum whose parameters are given out as they will be: of `staleness.predict`."""

from typing import Annotated

from pydantic import Field

from disttrain.job.update_rule import VELOCITY_OF_SUMS, UpdateRule


class PredictedMomentum(UpdateRule):
    """Momentum (PP-ASGD); see `staleness.Predict`."""

    name = "predicted_momentum"
    is_chosen = False
    kept = ("velocity",)
    serves = "prediction"
    zero_is_a_step = True

    momentum: Annotated[float, Field(ge=0, lt=1)]
    """Fraction of the velocity that is kept per update."""

    @property
    def local_learning_rate(self) -> float:
        # The velocity of what the replica fetched goes on already.
        return 0.0

    def effect_of_sums(self, steps: int) -> str:
        return VELOCITY_OF_SUMS.format(steps=steps)
