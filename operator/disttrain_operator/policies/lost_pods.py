"""Pods that should be gone and are not: those on a lost node are removed by force."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import JobRecord, PodRecord

PATIENCE = timedelta(seconds=30)
"""A kubelet that lives needs less than this after the grace period."""

AGAIN = timedelta(minutes=1)
"""After which a node that answered is asked again."""


def overdue(
    job: JobRecord, observed: Observed, answered: Mapping[str, datetime], now: datetime
) -> list[PodRecord]:
    """The pods to remove if their node is lost. Their processes are fenced, should they still run.

    `answered`: when nodes were found to answer.
    """
    return [pod for pod, at in _waited_for(job, observed, answered) if at <= now]


def next_instant(
    job: JobRecord, observed: Observed, answered: Mapping[str, datetime]
) -> datetime | None:
    return min((at for _, at in _waited_for(job, observed, answered)), default=None)


def _waited_for(
    job: JobRecord, observed: Observed, answered: Mapping[str, datetime]
) -> list[tuple[PodRecord, datetime]]:
    found = []
    for pod in observed.pods_of(job):
        if pod.over or pod.gone_at is None:
            continue
        due, asked = pod.gone_at + PATIENCE, answered.get(pod.node)
        found.append((pod, due if asked is None else max(due, asked + AGAIN)))
    return found
