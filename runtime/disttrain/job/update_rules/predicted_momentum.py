"""Momentum whose parameters are served as they will be, in a manifest."""

from typing import Annotated

from pydantic import Field

from disttrain.job.update_rule import VELOCITY_OF_SUMS, UpdateRule


class PredictedMomentum(UpdateRule):
    """Momentum (PP-ASGD) that gives out the parameters predicted for when a gradient is applied.

    Sato et al., "Asynchronous, Data-Parallel Deep Convolutional Neural Network Training with Linear
    Prediction Model for Parameter Transition", 2017. A replica computes with the parameters plus
    the velocity times momentum + ... + momentum^(S + 1), where S is the mean staleness of its
    pushes, rounded down. Evaluations, checkpoints and the exported model are of the parameters.
    """

    name = "predicted_momentum"
    kept = ("velocity",)
    serves = "prediction"
    zero_is_a_step = True

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Fraction of the velocity that is kept per update."""

    @property
    def local_learning_rate(self) -> float:
        # The velocity of what the replica fetched goes on already.
        return 0.0

    def effect_of_sums(self, steps: int) -> str:
        return VELOCITY_OF_SUMS.format(steps=steps)
