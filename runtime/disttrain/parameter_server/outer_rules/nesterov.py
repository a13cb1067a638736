"""Nesterov's momentum over differences."""

import torch
from torch import Tensor

from disttrain.job.outer_rules.nesterov import Nesterov
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule


class NesterovRule(Rule[Nesterov]):
    """velocity = momentum * velocity + difference, at the rate over the live replicas."""

    of = Nesterov

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        torch._fused_sgd_(
            [chunk.parameters],
            [gradient],
            [chunk.state["velocity"]],
            weight_decay=0.0,
            momentum=self.config.momentum,
            lr=push.rate * self.config.weight(push.staleness, push.live_replicas),
            dampening=0.0,
            nesterov=True,
            maximize=False,
            is_first_step=False,
        )
