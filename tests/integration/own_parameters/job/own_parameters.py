"""Replicas that keep their own parameters, in a manifest."""

from pydantic import Field

from disttrain.job.section import Positive
from disttrain.job.strategy_kind import StrategyKind


class OwnParameters(StrategyKind):
    """Each replica descends by itself, on its share of the data. The first one's model is kept."""

    name = "own_parameters"
    summary = "Plain SGD of replicas that share nothing but the data."

    learning_rate: Positive = Field(examples=[0.1])
    """The rate of every step."""

    @property
    def update_rule(self) -> str:
        return self.name

    def holding_replicas(self, replicas: int) -> int:
        return min(replicas, 1)
