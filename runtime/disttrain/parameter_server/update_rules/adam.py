"""Adam."""

from collections.abc import Callable

import torch
from torch import Tensor

from disttrain.job.update_rules.adam import Adam
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule


class AdamRule(Rule[Adam]):
    """Algorithm 1 of Kingma and Ba 2015."""

    of = Adam

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        step(torch._fused_adam_, self.config, chunk, gradient, push.rate)


def step(
    kernel: Callable[..., None],
    config: Adam,
    chunk: Chunk,
    gradient: Tensor,
    rate: float,
    weight_decay: float = 0.0,
) -> None:
    """One step of a fused kernel, which counts from 1."""
    kernel(
        [chunk.parameters],
        [gradient],
        [chunk.state["first_moment"]],
        [chunk.state["second_moment"]],
        [],
        [torch.tensor(chunk.steps + 1.0)],
        lr=rate,
        beta1=config.beta1,
        beta2=config.beta2,
        weight_decay=weight_decay,
        eps=config.epsilon,
        amsgrad=False,
        maximize=False,
    )
