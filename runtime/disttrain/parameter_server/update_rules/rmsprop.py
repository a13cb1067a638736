"""RMSprop."""

from torch import Tensor

from disttrain.job.update_rules.rmsprop import RmsProp
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule


class RmsPropRule(Rule[RmsProp]):
    """parameters -= rate * gradient / (root of the mean of squares + epsilon)."""

    of = RmsProp

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        mean, alpha = chunk.state["mean_of_squares"], self.config.alpha
        mean.mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
        root = mean.sqrt().add_(self.config.epsilon)
        chunk.parameters.addcdiv_(gradient, root, value=-push.rate)
