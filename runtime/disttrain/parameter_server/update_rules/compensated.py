"""Delay compensation, and then another rule."""

from collections.abc import Mapping

from torch import Tensor

from disttrain.job.update_rules.compensated import CURVATURE, MEAN_SQUARE, Compensated
from disttrain.parameter_server import arithmetic
from disttrain.parameter_server.update_rule import Chunk, FetchContext, PushContext, Rule


class CompensatedRule(Rule[Compensated]):
    """gradient + strength * (gradient^2 * parameters - curvature): Zheng et al. 2017.

    The curvature is gradient^2 times the parameters that the gradient was computed on, so that the
    bracket is gradient^2 times how far they have moved since.
    """

    of = Compensated

    def __init__(self, config: Compensated) -> None:
        super().__init__(config)
        self._inner = arithmetic.rule_for(config.inner)

    def apply(self, chunk: Chunk, gradient: Tensor, push: PushContext) -> None:
        squares = gradient * gradient
        correction = (squares * chunk.parameters).sub_(chunk.pushed[CURVATURE])
        adaptive = self.config.adaptive
        if adaptive is not None:
            mean, decay = chunk.state[MEAN_SQUARE], adaptive.mean_square_decay
            mean.mul_(decay).add_(squares, alpha=1.0 - decay)
            correction.div_((mean + adaptive.epsilon).sqrt_())
        compensated = correction.mul_(self.config.strength).add_(gradient)
        self._inner.apply(chunk, compensated, push)

    def serve(self, chunk: Chunk, fetch: FetchContext, out: Tensor) -> None:
        self._inner.serve(chunk, fetch, out)

    @property
    def prediction_errors(self) -> Mapping[int, float]:
        return self._inner.prediction_errors
