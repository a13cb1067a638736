"""The mean over replicas, one difference after the other."""

from torch import Tensor

from disttrain.job.outer_rules.average import Average
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule


class AverageRule(Rule[Average]):
    """parameters -= rate / live replicas * difference.

    Replicas that begin with the same parameters leave their mean, in whichever order they come.
    """

    of = Average

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        weight = self.config.weight(push.staleness, push.live_replicas)
        chunk.parameters.add_(gradient, alpha=-push.rate * weight)
