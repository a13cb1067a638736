"""How the replicas work together: one strategy of `job.strategies` per job."""

from typing import Final

from disttrain.job import subclasses
from disttrain.job.section import one_of
from disttrain.job.strategies.downpour import Downpour
from disttrain.job.strategy_kind import StrategyKind

KINDS: Final = subclasses.found("disttrain.job.strategies", StrategyKind)


class Strategy(one_of(*((kind.name, kind, kind.summary) for kind in KINDS))):  # type: ignore[misc]  # Its fields are the modules found.
    """Exactly one way for the replicas to work together."""

    @property
    def rule(self) -> StrategyKind:
        chosen: StrategyKind = super().rule
        return chosen

    @property
    def only_downpour(self) -> Downpour:
        """Downpour, for those who serve no other strategy; their processes ask `rule` before."""
        assert isinstance(self.rule, Downpour), "only for jobs of downpour"  # noqa: S101 - for ourselves.
        return self.rule
