"""Pods that should be gone and are not: those on a lost node are removed by force."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import JobRecord, PodRecord

PATIENCE = timedelta(seconds=30)
"""A kubelet that lives needs less than this after the grace period."""

AGAIN = timedelta(minutes=1)
"""After which a node that answered is asked again."""


def due(
    job: JobRecord, observed: Observed, answered: Mapping[str, datetime]
) -> list[tuple[PodRecord, datetime]]:
    """The pods to remove if their node is lost, and when to ask for that.

    Their processes are fenced, should they still run. `answered`: when nodes were found to answer.
    """
    found = []
    for pod in observed.pods_of(job):
        if pod.over or pod.gone_at is None:
            continue
        first, asked = pod.gone_at + PATIENCE, answered.get(pod.node)
        found.append((pod, first if asked is None else max(first, asked + AGAIN)))
    return found
