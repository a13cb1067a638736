"""The weighted mean of what several replicas have pushed, and then another rule."""

from collections.abc import Mapping

import torch
from torch import Tensor

from disttrain.job.merged import Merged
from disttrain.parameter_server import arithmetic
from disttrain.parameter_server.update_rule import Chunk, FetchContext, PushContext, Rule


class MergedRule(Rule[Merged]):
    """A push is added to what its replica has gathered; `merge` moves the parameters.

    After "Decoupled DiLoCo for Resilient Distributed Pre-training", 2026, arXiv 2604.21428.
    """

    of = Merged

    def __init__(self, config: Merged) -> None:
        super().__init__(config)
        self._inner = arithmetic.rule_for(config.inner)

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        chunk.state[self.config.gathered[push.sender]].add_(gradient)

    def serve(self, chunk: Chunk, fetch: FetchContext, out: Tensor) -> None:
        own = chunk.state[self.config.gathered[fetch.sender]]
        torch.sub(chunk.parameters, own, out=out)

    def merge(self, chunk: Chunk, weights: Mapping[int, float], rate: float) -> None:
        """Apply the mean of what these replicas have gathered, which is then nothing.

        `weights`: by replica, 1 together.
        """
        mean = torch.zeros_like(chunk.parameters)
        for sender, weight in weights.items():
            gathered = chunk.state[self.config.gathered[sender]]
            mean.add_(gathered, alpha=weight)
            gathered.zero_()
        merge = PushContext(
            sender=0, staleness=0, mean_staleness=0.0, steps=0, rate=rate, live_replicas=1
        )
        self._inner.apply(chunk, mean, merge)
