"""Momentum whose parameters are served as they will be."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from disttrain.job.update_rules.predicted_momentum import PredictedMomentum
from disttrain.parameter_server.prediction_error import PredictionErrors
from disttrain.parameter_server.update_rule import Chunk, FetchContext, PushContext, Rule


class PredictedMomentumRule(Rule[PredictedMomentum]):
    """M = momentum * M - rate * gradient, then parameters += M: Algorithm 2 of Sato et al. 2017."""

    of = PredictedMomentum

    def __init__(self, config: PredictedMomentum) -> None:
        super().__init__(config)
        self._errors = PredictionErrors()

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        velocity = chunk.state["velocity"]
        velocity.mul_(self.config.momentum).add_(gradient, alpha=-push.rate)
        chunk.parameters.add_(velocity)
        self._errors.applied(chunk.parameters, push)

    def serve(self, chunk: Chunk, fetch: FetchContext, out: Tensor) -> None:
        """Parameters + M * (momentum + ... + momentum ** (S + 1)): their equation 2.

        S is the sender's mean staleness, rounded down. With 0 it is Nesterov's look ahead.
        """
        ahead = math.floor(fetch.mean_staleness) + 1
        reach = reach_of(self.config.momentum, ahead)
        torch.add(chunk.parameters, chunk.state["velocity"], alpha=reach, out=out)
        self._errors.served(chunk.parameters, out, fetch)

    @property
    def prediction_errors(self) -> Mapping[int, float]:
        return self._errors.by_sender


def reach_of(momentum: float, updates: int) -> float:
    """How many of its own lengths a velocity that nothing adds to moves in so many updates."""
    # The quotient may be another number than the momentum that it is of.
    return momentum if updates == 1 else momentum * (1.0 - momentum**updates) / (1.0 - momentum)
