"""The coordinator's sections of a status: in status.json, and in the job's object. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import attrgetter
from statistics import median
from typing import Any

from disttrain.checkpoint import names
from disttrain.coordinator.journal.state import Saved, State
from disttrain.coordinator.protocol import reports
from disttrain.coordinator.protocol.reports import ShardReport
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.status import progress
from disttrain.coordinator.status.progress import Stage, at_work
from disttrain.coordinator.status.watch import Watch
from disttrain.job import object_uri
from disttrain.job.status import (
    MOST_MEASURES,
    CheckpointStatus,
    DataStatus,
    JobStatus,
    ParameterServerStatus,
    ShardStatus,
    TrainingStatus,
)
from disttrain.job.status_section import LONGEST_TEXT


def of_object(state: State, stages: Sequence[Stage], watch: Watch, now: float) -> dict[str, Any]:
    saved, settings = state.saved, stages[-1].settings
    sections = {
        "training": training(state, stages, watch, now),
        "data": DataStatus(
            portions_done=state.data.portions_done,
            portions_requeued=state.data.portions_requeued,
            samples_repeated=state.data.samples_repeated,
        ),
        "parameter_server": _parameter_server(state, watch) if settings.shards else None,
        "checkpoint": None if saved is None else _checkpoint(saved, settings.checkpoint_uri),
        **stages[-1].status(state),
    }
    whole = JobStatus.model_validate(sections)
    return whole.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(sections))


def training(state: State, stages: Sequence[Stage], watch: Watch, now: float) -> TrainingStatus:
    stage, last = stages[at_work(stages, state)], stages[-1]
    speed = watch.samples_per_second()
    estimate = progress.estimate(state, last, now, speed)
    fraction, histogram = estimate.fraction, all_shards(state, watch).staleness
    loss = stage.loss(state, watch)
    warnings = (checkpoint_warning(state), measure_warning(state))
    measures = dict(list(latest_measures(state).items())[:MOST_MEASURES])
    return TrainingStatus(
        epoch=progress.epochs_processed(state),
        steps=state.data.steps_done,
        samples=state.samples,
        samples_per_second=speed,
        speed=_readable(speed),
        loss=loss,
        recent_loss=None if loss is None else _readable(loss),
        metrics=measures,
        metrics_samples=state.evaluations[-1].samples if state.evaluations else None,
        measure=_measure(stage.settings, measures),
        warning="; ".join(text for text in warnings if text)[:LONGEST_TEXT] or None,
        staleness_p50=reports.staleness_quantile(histogram, 0.5),
        staleness_p99=reports.staleness_quantile(histogram, 0.99),
        prediction_error=_prediction_error(watch),
        progress_percent=None if fraction is None else math.floor(fraction * 100),
        estimated_remaining_seconds=estimate.remaining_seconds,
    )


def _prediction_error(watch: Watch) -> float | None:
    errors = [each.error for shard in watch.shards.values() for each in shard.predicted.values()]
    return median(errors) if errors else None


def measure_warning(state: State) -> str | None:
    """What to say of the latest evaluation's measures that are no finite numbers; None of none."""
    found = latest_measures(state).items()
    spoiled = [name for name, value in found if not math.isfinite(value)]
    if not spoiled:
        return None
    one = len(spoiled) == 1
    return (
        f"the measure{'' if one else 's'} {', '.join(spoiled)} of the latest evaluation "
        f"{'is' if one else 'are'} no finite number; "
        "look at what Task.measure() divides by, and at the model's outputs"
    )


def checkpoint_warning(state: State) -> str | None:
    """That what was trained lately is not saved, and why; None when the latest checkpoint is."""
    if not state.checkpoint_failure or state.phase.ended:
        return None
    last = state.last_checkpoint
    what = "nothing is saved yet" if last is None else f"nothing since checkpoint {last} is saved"
    return f"{what}: {state.checkpoint_failure}"


def all_shards(state: State, watch: Watch) -> ShardReport:
    reports_of_shards = (*watch.shards.values(), *state.totals.shard_reports.values())
    return reduce(reports.added, reports_of_shards, ShardReport())


def shortened_pushes(state: State, watch: Watch) -> int:
    """Each shard counts every push: as many as the shard that has counted most."""
    found = Counter({index: each.shortened for index, each in state.totals.shard_reports.items()})
    found.update({member.index: each.shortened for member, each in watch.shards.items()})
    return max(found.values(), default=0)


def learning_rate(watch: Watch) -> float | None:
    """Of the shard that is furthest; None: no shard has one."""
    known = [report for report in watch.shards.values() if report.rate is not None]
    return max(known, key=attrgetter("version")).rate if known else None


def _readable(number: float) -> str:
    """Three digits that count, and of large numbers the whole part."""
    return f"{number:,.0f}" if 100 <= abs(number) < math.inf else f"{number:.3g}"


def latest_measures(state: State) -> dict[str, float]:
    return state.evaluations[-1].measures if state.evaluations else {}


def _measure(settings: Settings, measures: dict[str, float]) -> str | None:
    target = settings.stop.target_metric
    name = target.name if target is not None else next(iter(measures), None)
    if name is None or name not in measures:
        return None
    return f"{name} {measures[name]:.4g}"


def _parameter_server(state: State, watch: Watch) -> ParameterServerStatus:
    ready = [shard for shard in state.shards.values() if shard.live and shard.initialised]
    shards = tuple(_shard(state, watch, index) for index in sorted(state.shards))
    return ParameterServerStatus(
        ready=len(ready),
        updates_at_risk=sum(shard.updates_at_risk or 0 for shard in shards),
        shards=shards,
    )


def _shard(state: State, watch: Watch, index: int) -> ShardStatus:
    report = watch.shards.get(state.shards[index].member)
    saved = state.saved.versions.get(index) if state.saved is not None else None
    version = report.version if report is not None else None
    histogram = report.staleness if report is not None else ()
    return ShardStatus(
        index=index,
        version=version,
        staleness_p50=reports.staleness_quantile(histogram, 0.5),
        staleness_p99=reports.staleness_quantile(histogram, 0.99),
        checkpoint_version=saved,
        updates_at_risk=None if version is None else max(0, version - (saved or 0)),
    )


def _checkpoint(saved: Saved, uri: str) -> CheckpointStatus:
    is_object = object_uri.is_one(uri)
    name = names.manifest_object(saved.number) if is_object else names.folder(saved.number)
    return CheckpointStatus(
        path=f"{uri.rstrip('/')}/{name}"[:LONGEST_TEXT],
        time=datetime.fromtimestamp(saved.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        samples=saved.samples,
    )
