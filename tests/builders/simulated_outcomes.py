"""What simulated runs came to."""

from typing import Any

from pydantic.alias_generators import to_camel

from disttrain.job.stop import TargetMetric
from disttrain.job.strategies.downpour import Downpour
from disttrain.job.strategy_kind import StrategyKind
from disttrain.replay.final_values import Measured
from disttrain.simulation.evaluations import Point, Result
from disttrain.simulation.outcome import Outcome

DOWNPOUR = Downpour()
TARGET = TargetMetric(name="accuracy", at_least=0.9)


def a_result(replicas: int, seconds: float, *, met: bool | None = True, **fields: Any) -> Result:
    reached = 0.5 if met is False else 0.95
    points = [(seconds / 2, 50, 0.5, 0.7), (seconds, 100, reached, 0.4)]
    defaults: dict[str, Any] = {
        "samples": 100,
        "nbytes": 4_000_000_000,
        "staleness": {0: 1, replicas: 98, 4 * replicas: 1},
        "computing": 0.9,
        "points": tuple(
            Point(seconds=at, samples=count, measured=Measured(loss=loss, measures={"accuracy": a}))
            for at, count, a, loss in points
        ),
    }
    given = {"replicas": replicas, "seconds": seconds, "target_met": met, **defaults, **fields}
    return Result(**given)


def an_outcome(
    *results: Result,
    target: TargetMetric | None = TARGET,
    strategy: StrategyKind = DOWNPOUR,
    manifest: str = "job.yaml",
) -> Outcome:
    remedy = strategy.against_a_slow_network
    return Outcome(
        job="digits",
        manifest=manifest,
        strategy=to_camel(strategy.name),
        target=target,
        less_network=remedy,
        results=results,
    )
