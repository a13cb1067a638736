"""Parameters that are moved towards those of a replica."""

from torch import Tensor

from disttrain.job.outer_rules.blend import Blend
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule


class BlendRule(Rule[Blend]):
    """parameters += weight * (pushed - parameters); the pushed bits where the weight is 1."""

    of = Blend

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        weight = push.rate * self.config.weight(push.staleness, push.live_replicas)
        if weight == 1.0:
            chunk.parameters.copy_(gradient)
        else:
            chunk.parameters.lerp_(gradient, weight)
