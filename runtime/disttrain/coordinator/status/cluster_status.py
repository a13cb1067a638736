"""The coordinator's part of the status of the job's object, and when to send it. Pure.

Sent by server-side apply: a patch holds every field that the coordinator owns, or the API server
would remove the others.
"""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from disttrain.checkpoint import names, object_names
from disttrain.coordinator.journal.state import Saved, State
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.status import progress, status
from disttrain.coordinator.status.stages import Stage, at_work
from disttrain.coordinator.status.watch import Watch
from disttrain.job import object_uri, spec
from disttrain.job.status import (
    CheckpointStatus,
    DataStatus,
    JobStatus,
    ParameterServerStatus,
    ShardStatus,
    TrainingStatus,
)
from disttrain.job.status_section import LONGEST_TEXT

Json = dict[str, Any]

EVERY_SECONDS = 10.0
"""Least time between two patches; a random part is added, so that jobs do not keep step."""
STEADY_SECONDS = 30.0
"""The same once training has gone on for long: thousands of jobs write to one API server, and
nobody follows each of them for hours."""
STEADY_AFTER_SECONDS = 300.0
LARGEST_BYTES = 16 * 1024
_JITTER = 0.2
_LONGEST_PAUSE_SECONDS = 120.0
_MOST_MEASURES = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class JobObject:
    """Which object: the uid tells it from a later one of the same name."""

    name: str
    namespace: str
    uid: str


def fields(state: State, stages: Sequence[Stage], watch: Watch, now: float) -> Json:
    """What the status of the object should say now."""
    found: Json = {
        "training": _training(state, stages, watch, now).as_json(),
        "data": _data(state).as_json(),
    }
    if stages[-1].settings.shards:
        found["parameterServer"] = _parameter_server(state, watch).as_json()
    if own := stages[-1].status(state):
        whole = JobStatus.model_validate(own)
        found |= whole.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(own))
    if state.saved is not None:
        found["checkpoint"] = _checkpoint(state.saved, stages[-1].settings.checkpoint_uri).as_json()
    return found


class Patches:
    """Decides what to send. Belongs to the coordinator's thread."""

    def __init__(self, job: JobObject, chance: random.Random) -> None:
        self._job = job
        self._chance = chance
        self._taken: Json | None = None
        """What the API server has."""
        self._next = 0.0
        self._first: float | None = None
        """When this process sent something first."""
        self._failures = 0

    def due(self, now: float) -> bool:
        return now >= self._next

    def take(self, wanted: Json, now: float) -> bytes | None:
        """The patch to send now; None if the API server has it already."""
        self._first = now if self._first is None else self._first
        is_steady = now - self._first >= STEADY_AFTER_SECONDS
        self._next = now + self._pause(STEADY_SECONDS if is_steady else EVERY_SECONDS)
        return None if wanted == self._taken else encode(self._job, wanted)

    def answered(self, wanted: Json, *, is_taken: bool) -> None:
        """What came of it; after failures the pauses become longer."""
        self._taken = wanted if is_taken else None
        self._failures = 0 if is_taken else self._failures + 1

    def _pause(self, usual: float) -> float:
        longer = usual * 2.0 ** min(self._failures, 8)
        return min(longer, _LONGEST_PAUSE_SECONDS) * (1 + _JITTER * self._chance.random())


def encode(job: JobObject, wanted: Json) -> bytes:
    """The patch, without the details that would make it too large."""
    for told in (wanted, _without_shards(wanted), _without_measures(wanted)):
        content = json.dumps(_patch(job, status.finite(told)), allow_nan=False).encode()
        if len(content) <= LARGEST_BYTES:
            break
    return content


def _patch(job: JobObject, told: Json) -> Json:
    return {
        "apiVersion": spec.API_VERSION,
        "kind": spec.KIND,
        "metadata": {"name": job.name, "namespace": job.namespace, "uid": job.uid},
        "status": told,
    }


def _without_shards(wanted: Json) -> Json:
    servers = wanted.get("parameterServer", {})
    told = {key: value for key, value in servers.items() if key != "shards"}
    return wanted | ({"parameterServer": told} if told else {})


def _without_measures(wanted: Json) -> Json:
    training = {key: value for key, value in wanted["training"].items() if key != "metrics"}
    return {**_without_shards(wanted), "training": training}


def _training(state: State, stages: Sequence[Stage], watch: Watch, now: float) -> TrainingStatus:
    stage, last = stages[at_work(stages, state)], stages[-1]
    speed = watch.samples_per_second()
    estimate = progress.estimate(state, last, now, speed)
    staleness = status.staleness_figures(state, watch)
    loss = stage.loss(state, watch)
    warnings = (status.checkpoint_warning(state), status.measure_warning(state))
    measures = dict(list(_measures(state).items())[:_MOST_MEASURES])
    return TrainingStatus(
        epoch=progress.epochs_processed(state),
        steps=state.data.steps_done,
        samples=state.samples,
        samples_per_second=speed,
        speed=_readable(speed),
        loss=loss,
        recent_loss=None if loss is None else _readable(loss),
        metrics=measures,
        measure=_measure(stage.settings, measures),
        warning="; ".join(text for text in warnings if text)[:LONGEST_TEXT] or None,
        staleness_p50=staleness["p50"],
        staleness_p99=staleness["p99"],
        progress_percent=math.floor(estimate.fraction * 100),
        estimated_remaining_seconds=estimate.remaining_seconds,
    )


def _readable(number: float) -> str:
    """Three digits that count, and of large numbers the whole part."""
    return f"{number:,.0f}" if 100 <= abs(number) < math.inf else f"{number:.3g}"


def _measures(state: State) -> dict[str, float]:
    return state.evaluations[-1].measures if state.evaluations else {}


def _measure(settings: Settings, measures: dict[str, float]) -> str | None:
    target = settings.stop.target_metric
    name = target.name if target is not None else next(iter(measures), None)
    if name is None or name not in measures:
        return None
    return f"{name} {measures[name]:.4g}"


def _data(state: State) -> DataStatus:
    return DataStatus(
        portions_done=state.data.portions_done,
        portions_requeued=state.data.portions_requeued,
        samples_repeated=state.data.samples_repeated,
    )


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
    return ShardStatus(
        index=index,
        version=version,
        checkpoint_version=saved,
        updates_at_risk=None if version is None else max(0, version - (saved or 0)),
    )


def _checkpoint(saved: Saved, uri: str) -> CheckpointStatus:
    is_object = object_uri.is_one(uri)
    name = object_names.manifest(saved.number) if is_object else names.folder(saved.number)
    return CheckpointStatus(
        path=f"{uri.rstrip('/')}/{name}"[:LONGEST_TEXT],
        time=datetime.fromtimestamp(saved.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        samples=saved.samples,
    )
