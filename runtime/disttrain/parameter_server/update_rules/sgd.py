"""Plain SGD."""

from torch import Tensor

from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule


class SgdRule(Rule[Sgd]):
    """parameters -= rate * gradient, with the very operation of torch.optim.SGD, hence its bits."""

    of = Sgd

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        chunk.parameters.add_(gradient, alpha=-push.rate)
