"""A replica's own steps between fetches: plain SGD, at a rate that follows the shards' schedule."""

from torch import Tensor

from disttrain.parameter_server.update_rule import Factor


class LocalSteps:
    """Belongs to the compute thread.

    As on a shard, a step's rate is decided by the samples before it: those in the parameters that
    were adopted last, and those of the local steps since. What other replicas do meanwhile is not
    known before the next fetch.
    """

    def __init__(self, learning_rate: float, factor: Factor) -> None:
        """`learning_rate`: the full rate, which the schedule multiplies; 0: no local steps."""
        self._learning_rate = learning_rate
        self._factor = factor
        self.samples = 0
        """In the parameters as they are now, as far as this replica knows."""

    def adopted(self, samples: int) -> None:
        """The model computes with other parameters now, which hold so many samples."""
        self.samples = samples

    def step(self, parameters: Tensor, gradient: Tensor, scale: float, samples: int) -> None:
        """Move the parameters by `scale` times a gradient of so many samples; 0: it is refused."""
        if scale == 0:
            return
        rate = self._learning_rate * self._factor(self.samples)
        if rate > 0:
            parameters.add_(gradient, alpha=-rate * scale)
        self.samples += samples
