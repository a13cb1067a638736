"""Adam with decoupled weight decay."""

import torch
from torch import Tensor

from disttrain.job.update_rules.adamw import AdamW
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule
from disttrain.parameter_server.update_rules import adam


class AdamWRule(Rule[AdamW]):
    """Algorithm 2 of Loshchilov and Hutter 2019, whose decay is times the rate, as torch's is."""

    of = AdamW

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        decay = self.config.weight_decay * chunk.decay_factor
        adam.step(torch._fused_adamw_, self.config, chunk, gradient, push.rate, decay)
