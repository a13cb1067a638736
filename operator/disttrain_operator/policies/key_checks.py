"""When to see whether a job's keys are still there. The operator may not read Secrets."""

from datetime import datetime, timedelta

from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import JobRecord, PodRecord

PATIENCE = timedelta(seconds=30)
"""A pod whose volumes are there has its containers created in less."""

AGAIN = timedelta(minutes=1)
"""Pods wait for other things too: an image, a volume."""

_CREATING = "ContainerCreating"
"""What a node says of a pod until the pod has its volumes."""


def due_at(job: JobRecord, observed: Observed, checked: datetime | None) -> datetime | None:
    """When a check is due; None while every pod has its volumes."""
    suspicious = [
        pod.created + PATIENCE
        for pod in observed.pods_of(job)
        # A pod without a node asks for no volume yet.
        if pod.created is not None and pod.waiting == _CREATING and _waits(pod)
    ]
    if not suspicious:
        return None
    first = min(suspicious)
    return first if checked is None else max(first, checked + AGAIN)


def holders(job: JobRecord, observed: Observed) -> tuple[PodRecord, ...]:
    """The pods that run with the keys that there were: with others beside them they are alone."""
    own = observed.pods_of(job)
    return tuple(pod for pod in own if not pod.over and pod.gone_at is None and not _waits(pod))


def _waits(pod: PodRecord) -> bool:
    pending = pod.phase == "Pending" and not pod.unschedulable and pod.gone_at is None
    return pending and pod.waiting in {"", _CREATING}
