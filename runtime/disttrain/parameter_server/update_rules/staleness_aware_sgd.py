"""SGD whose rate falls with the staleness of a gradient."""

from torch import Tensor

from disttrain.job.update_rules.staleness_aware_sgd import StalenessAwareSgd
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule


class StalenessAwareSgdRule(Rule[StalenessAwareSgd]):
    """parameters -= rate / max(1, staleness) * gradient: Zhang et al. 2016, Gupta et al. 2016."""

    of = StalenessAwareSgd

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        staleness = push.staleness if push.staleness >= 0 else push.mean_staleness
        chunk.parameters.add_(gradient, alpha=-push.rate / max(1.0, staleness))
