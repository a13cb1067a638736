"""How the replicas work together: one strategy per job."""

from disttrain.job.downpour import Downpour
from disttrain.job.sandblaster import Sandblaster
from disttrain.job.section import Choice


class Strategy(Choice):
    """Exactly one way for the replicas to work together."""

    downpour: Downpour | None = None
    """Asynchronous SGD with a parameter server."""

    sandblaster: Sandblaster | None = None
    """Batch optimisation, such as L-BFGS, with a parameter server."""

    @property
    def rule(self) -> Downpour | Sandblaster:
        options: list[Downpour | Sandblaster | None] = [self.downpour, self.sandblaster]
        return next(option for option in options if option is not None)

    @property
    def only_downpour(self) -> Downpour:
        """Downpour, for those who serve no other strategy; their processes ask `rule` before."""
        assert self.downpour is not None, "only for jobs of downpour"  # noqa: S101 - for ourselves.
        return self.downpour
