"""SGD with momentum."""

import torch
from torch import Tensor

from disttrain.job.update_rules.momentum import Momentum
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule


class MomentumRule(Rule[Momentum]):
    """velocity = momentum * velocity + gradient, as torch.optim.SGD without dampening."""

    of = Momentum

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        torch._fused_sgd_(
            [chunk.parameters],
            [gradient],
            [chunk.state["momentum"]],
            weight_decay=0.0,
            momentum=self.config.momentum,
            lr=push.rate,
            dampening=0.0,
            nesterov=self.config.nesterov,
            maximize=False,
            is_first_step=False,
        )
