"""A shard of local steps: what a push carries is a difference of parameters, not a gradient."""

from functools import partial
from typing import Any, Self

from disttrain.job import defaults
from disttrain.job.spec import Spec
from disttrain.job.staleness import Maximum, Staleness
from disttrain.job.strategies.local_steps import LocalSteps
from disttrain.parameter_server import arithmetic
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.strategies.downpour import PushedGradients


class PushedDifferences(PushedGradients):
    """Differences are counted, applied at most once and refused as gradients are."""

    of = LocalSteps

    @classmethod
    def made(cls, stage: Spec, state: ShardState, records: Records) -> Self:
        strategy = _strategy(stage)
        rule, extent = arithmetic.rule_for(strategy.outer.rule), partial(defaults.extent, stage)
        most = strategy.maximum_age
        maximum = None if most is None else Maximum(updates=most)
        return cls(rule, state, records, extent, staleness=Staleness(maximum=maximum))

    @staticmethod
    def config_of(stage: Spec) -> Any:
        return _strategy(stage).outer.rule


def _strategy(stage: Spec) -> LocalSteps:
    strategy = stage.strategy.rule
    assert isinstance(strategy, LocalSteps)  # noqa: S101  The registry has asked.
    return strategy
