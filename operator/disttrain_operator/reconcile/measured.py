"""What a change of a job's status means for the operator's metrics."""

from datetime import datetime
from typing import Any

from disttrain.job.status import Phase
from disttrain_operator.observed.records import JobRecord
from disttrain_operator.telemetry import metrics

_ENDED = frozenset({Phase.COMPLETE, Phase.FAILED})


def count(job: JobRecord, status: dict[str, Any], now: datetime) -> None:
    """Count what is new in a status; called once for each that is written."""
    before, phase = job.status, status.get("phase")
    if before.get("phase") is None:
        metrics.JOBS_ACCEPTED.labels(job.key.namespace).inc()
    if phase in _ENDED and before.get("phase") not in _ENDED:
        metrics.JOBS_ENDED.labels(job.key.namespace, phase).inc()
        metrics.JOB_SECONDS.labels(phase).observe((now - job.created).total_seconds())
    if before.get("phase") in {None, Phase.PENDING} and phase == Phase.RUNNING:
        metrics.STARTING_SECONDS.observe((now - job.created).total_seconds())
    known = before.get("failures")
    for failure in status.get("failures", []):
        if not isinstance(known, list) or failure not in known:
            metrics.RESTARTS.labels(failure["role"], failure.get("reason", "")).inc()
