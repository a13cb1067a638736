"""When a job is complete. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from disttrain.coordinator.journal.state import Evaluation, Improvement
from disttrain.coordinator.phases import StopReason
from disttrain.job.stop import Patience, Stop, TargetMetric


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
    vain_evaluations: int = 0
    """The latest ones in a row, without an improvement."""


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
    if stop.patience is not None and reached.vain_evaluations >= stop.patience.evaluations:
        return StopReason.PATIENCE
    return None


def vain_evaluations(patience: Patience | None, known: Improvement | None) -> int:
    """Those in a row that found nothing better, of what the job stops by now."""
    if patience is None or known is None or known.name != (patience.name or ""):
        return 0
    return known.evaluations


def improvement(
    patience: Patience | None, before: Improvement | None, latest: Evaluation
) -> Improvement | None:
    """What is known after an evaluation; None: nothing, since nobody asks."""
    if patience is None or latest.final:
        return before
    name = patience.name or ""
    known = Improvement(name=name) if before is None or before.name != name else before
    value = patience.value_of(latest.measures, latest.loss)
    if patience.improves(value, known.best):
        return Improvement(name=name, best=value)
    return replace(known, evaluations=known.evaluations + 1)


def is_target_met(target: TargetMetric, measures: Mapping[str, float]) -> bool:
    """Whether the measure is good enough; false if it was not measured or is not a number."""
    value = measures.get(target.name)
    return value is not None and target.is_met(value)
