"""Momentum over differences that waits for one of each replica."""

from torch import Tensor

from disttrain.job.outer_rules.delayed_nesterov import DelayedNesterov
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule


class DelayedNesterovRule(Rule[DelayedNesterov]):
    """Each push moves the parameters, every so many of them the velocity.

    velocity = momentum * velocity + mean difference, and the parameters go a further rate *
    momentum * velocity against it. With one replica this is Nesterov's momentum as torch has it.
    """

    of = DelayedNesterov

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        weight = self.config.weight(push.staleness, push.live_replicas)
        velocity, waiting = chunk.state["velocity"], chunk.state["waiting"]
        chunk.parameters.add_(gradient, alpha=-push.rate * weight)
        waiting.add_(gradient, alpha=weight)
        if (chunk.steps + 1) % max(1, push.live_replicas) == 0:
            velocity.mul_(self.config.momentum).add_(waiting)
            chunk.parameters.add_(velocity, alpha=-push.rate * self.config.momentum)
            waiting.zero_()
