"""Pods that should be gone and are not, because their node is lost."""

from datetime import datetime, timedelta

from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import JobRecord, PodRecord

PATIENCE = timedelta(seconds=30)
"""A kubelet that lives needs less than this after the grace period."""


def overdue(job: JobRecord, observed: Observed, now: datetime) -> list[PodRecord]:
    """The pods to remove by force. Their processes are fenced, should they still run."""
    return [pod for pod, at in _waited_for(job, observed) if at <= now]


def next_instant(job: JobRecord, observed: Observed) -> datetime | None:
    """When the next pod will be overdue."""
    return min((at for _, at in _waited_for(job, observed)), default=None)


def _waited_for(job: JobRecord, observed: Observed) -> list[tuple[PodRecord, datetime]]:
    own = [pod for pod in observed.pods_of(job) if not pod.over]
    return [(pod, pod.gone_at + PATIENCE) for pod in own if pod.gone_at is not None]
