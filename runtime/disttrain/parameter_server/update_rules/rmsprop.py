"""RMSprop."""

import torch
from torch import Tensor

from disttrain.job.update_rules.rmsprop import MEAN, RmsProp
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule


class RmsPropRule(Rule[RmsProp]):
    """parameters -= rate * gradient / (root + epsilon), of the mean of squares or the variance."""

    of = RmsProp

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        mean, alpha = chunk.state["mean_of_squares"], self.config.alpha
        mean.mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
        root = self._root(chunk, gradient).add_(self.config.epsilon)
        chunk.parameters.addcdiv_(gradient, root, value=-push.rate)

    def _root(self, chunk: Chunk, gradient: Tensor) -> Tensor:
        """New memory."""
        squares = chunk.state["mean_of_squares"]
        if not self.config.centered:
            return squares.sqrt()
        mean = chunk.state[MEAN].lerp_(gradient, 1 - self.config.alpha)
        variance = torch.addcmul(squares, mean, mean, value=-1)
        # Of gradients that hardly change it is a rounding error, perhaps below 0.
        return variance.clamp_min_(0.0).sqrt_()
