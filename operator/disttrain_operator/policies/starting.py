"""Pods that do not start, and why: for want of keys, too, which the operator may not read."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from disttrain_operator.kinds import Kind
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import ChildRecord, JobRecord, PodRecord
from disttrain_operator.policies import missing_pods, restarts
from disttrain_operator.policies.missing_pods import Lack
from disttrain_operator.policies.problem import Problem, ProblemType

_PASSING = {"", "ContainerCreating", "PodInitializing"}
"""What a pod waits for without anybody's doing."""

CREATING_PATIENCE = timedelta(seconds=30)
"""A pod whose volumes are there has its containers created in less."""

CHECK_KEYS_AGAIN = timedelta(minutes=1)
"""Pods wait for other things too: an image, a volume."""

_CREATING = "ContainerCreating"
"""What a node says of a pod until the pod has its volumes."""

_SCHEDULING = timedelta(seconds=5)
"""A new pod has no node until its new volume is bound, which says nothing of a lack."""

_MOST = 3
"""Pods that are named; the others of the same kind fail alike."""


def problems(
    job: JobRecord, observed: Observed, lacks: Mapping[str, Lack], now: datetime
) -> list[Problem]:
    """What keeps the job's pods from starting; `lacks`: what is known of workloads without pods."""
    mine = observed.pods_of(job)
    pods = [pod for pod in mine if not pod.unschedulable or _judged_at(pod, now) <= now]
    own = observed.children_of(job)
    found = [*_volumes(own, pods), *_pods(pods), *_workloads(own, lacks)]
    return list({problem.type: problem for problem in reversed(found)}.values())


def next_instant(job: JobRecord, observed: Observed, now: datetime) -> datetime | None:
    """When the next pod without a node will have been without one for long enough."""
    instants = (_judged_at(pod, now) for pod in observed.pods_of(job) if pod.unschedulable)
    return min((instant for instant in instants if instant > now), default=None)


def _judged_at(pod: PodRecord, now: datetime) -> datetime:
    return now if pod.created is None else pod.created + _SCHEDULING


def _volumes(children: list[ChildRecord], pods: Iterable[PodRecord]) -> list[Problem]:
    if not any(pod.unschedulable for pod in pods):
        return []
    return [
        Problem(
            ProblemType.VOLUME_UNBOUND,
            f"PersistentVolumeClaim {child.name} has no volume ({child.trouble}); see kubectl "
            f"describe pvc {child.name}, or name another claim or class in spec.checkpoint.volume",
        )
        for child in children
        if child.kind is Kind.PersistentVolumeClaim and child.trouble
    ]


def _pods(pods: list[PodRecord]) -> list[Problem]:
    stuck = sorted((pod for pod in pods if _is_stuck(pod)), key=_causes_first)
    if not stuck:
        return []
    lines = [f"pod {pod.name}: {_why(pod)}" for pod in stuck]
    more = f" (and {len(lines) - _MOST} more)" if len(lines) > _MOST else ""
    reason = "Unschedulable" if stuck[0].unschedulable else stuck[0].waiting
    return [Problem(ProblemType.CANNOT_START, "; ".join(lines[:_MOST]) + more, reason)]


def _causes_first(pod: PodRecord) -> tuple[bool, str]:
    return restarts.is_consequence(pod, pod.death), pod.name


def _is_stuck(pod: PodRecord) -> bool:
    if pod.over or pod.gone_at is not None:
        return False
    return pod.unschedulable or pod.waiting not in _PASSING


def _why(pod: PodRecord) -> str:
    said = pod.detail
    if pod.death is not None and pod.waiting == "CrashLoopBackOff":
        said = f"exit code {pod.death.exit_code}, {pod.death.reason}: {pod.death.message}"
    return f"{'Unschedulable' if pod.unschedulable else pod.waiting}: {said}"


def _workloads(children: list[ChildRecord], lacks: Mapping[str, Lack]) -> list[Problem]:
    found = []
    for child in children:
        known = lacks.get(child.uid)
        said = child.trouble or (known.said if known else "")
        if said and missing_pods.lacks_pods(child):
            message = f"{child.kind.name} {child.name} cannot create its pods: {said}"
            found.append(Problem(ProblemType.CANNOT_START, message, missing_pods.REASON))
    return found


def keys_due_at(job: JobRecord, observed: Observed, checked: datetime | None) -> datetime | None:
    """When to see whether the job's keys are still there; None while every pod has its volumes."""
    suspicious = [
        pod.created + CREATING_PATIENCE
        for pod in observed.pods_of(job)
        # A pod without a node asks for no volume yet.
        if pod.created is not None and pod.waiting == _CREATING and _waits(pod)
    ]
    if not suspicious:
        return None
    first = min(suspicious)
    return first if checked is None else max(first, checked + CHECK_KEYS_AGAIN)


def key_holders(job: JobRecord, observed: Observed) -> tuple[PodRecord, ...]:
    """The pods that run with the keys that there were: with others beside them they are alone."""
    own = observed.pods_of(job)
    return tuple(pod for pod in own if not pod.over and pod.gone_at is None and not _waits(pod))


def _waits(pod: PodRecord) -> bool:
    pending = pod.phase == "Pending" and not pod.unschedulable and pod.gone_at is None
    return pending and pod.waiting in {"", _CREATING}
