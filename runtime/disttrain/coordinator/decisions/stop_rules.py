"""When a job is complete. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from disttrain.coordinator.phases import StopReason
from disttrain.job.stop import Stop, TargetMetric


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """How far a job is."""

    epochs: int
    """Complete passes."""
    steps: int
    samples: int
    seconds: float
    measures: Mapping[str, float]
    """Of the last evaluation."""
    iterations: int = 0
    """Of a batch method."""


def met(stop: Stop, reached: Reached) -> StopReason | None:
    """The first rule that is met, in the order in which the manifest describes them."""
    limits = (
        (StopReason.EPOCHS, stop.epochs, reached.epochs),
        (StopReason.STEPS, stop.steps, reached.steps),
        (StopReason.ITERATIONS, stop.iterations, reached.iterations),
        (StopReason.SAMPLES, stop.samples, reached.samples),
        (StopReason.SECONDS, stop.seconds, reached.seconds),
    )
    for reason, limit, value in limits:
        if limit is not None and value >= limit:
            return reason
    if stop.target_metric is not None and is_target_met(stop.target_metric, reached.measures):
        return StopReason.TARGET_METRIC
    return None


def is_target_met(target: TargetMetric, measures: Mapping[str, float]) -> bool:
    """Whether the measure is good enough; false if it was not measured or is not a number."""
    value = measures.get(target.name)
    return value is not None and target.is_met(value)
