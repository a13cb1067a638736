"""Adagrad."""

import torch
from torch import Tensor

from disttrain.job.update_rules.adagrad import Adagrad
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule

_STEP = torch.zeros(())
"""Nothing decays with it."""


class AdagradRule(Rule[Adagrad]):
    """rate / (root of the sum of squared gradients + epsilon), per parameter: DistBelief 4.1."""

    of = Adagrad

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        torch._fused_adagrad_(
            [chunk.parameters],
            [gradient],
            [chunk.state["sum_of_squares"]],
            [_STEP],
            lr=push.rate,
            lr_decay=0.0,
            weight_decay=0.0,
            eps=self.config.epsilon,
            maximize=False,
        )
