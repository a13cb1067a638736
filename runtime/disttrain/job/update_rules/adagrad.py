"""Adagrad in a manifest."""

import math

from disttrain.job.section import NotNegative, Positive
from disttrain.job.update_rule import UpdateRule


class Adagrad(UpdateRule):
    """DistBelief's Adagrad, its choice for Downpour: the rate over the root of summed squares."""

    name = "adagrad"
    kept = ("sum_of_squares",)
    adapts = True

    initial_accumulator: NotNegative = 0.0
    """Sum of squared gradients that every parameter begins with. With 0, as in DistBelief, the
    first step moves every parameter by the whole learning rate; 0.1 begins gently."""

    epsilon: Positive = 1e-10
    """Added to the root, so that a gradient that was always zero gives no NaN."""

    @property
    def initial_state(self) -> dict[str, float]:
        return {"sum_of_squares": self.initial_accumulator}

    @property
    def local_learning_rate(self) -> float:
        # The rates lie with the sums on the shards; a replica would only guess them.
        return 0.0

    def hasty_beginning(self, replicas: int) -> str | None:
        if self.initial_accumulator or self.schedule.beginning is not None:
            return None
        return (
            f"begins with initialAccumulator 0 and its full rate, so the first steps of "
            f"{replicas} replicas, each {self.learning_rate:g} in every parameter, add up; "
            "set initialAccumulator: 0.1 and a warmup in its schedule, as {fraction: 0.05}, "
            "or spec.strategy.downpour.warmStart"
        )

    def effect_of_sums(self, steps: int) -> str:
        return (
            f"makes Adagrad square the sum of {steps} gradients, so that its steps become smaller; "
            f"take about {math.sqrt(steps):.2g} times the learningRate of pushEvery 1"
        )
