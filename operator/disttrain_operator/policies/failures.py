"""The latest deaths of a job's processes, kept after the pods are gone."""

from collections.abc import Iterable

from disttrain.job.status import Failure, with_failure
from disttrain_operator import times
from disttrain_operator.observed.records import Death, PodRecord


def latest(known: tuple[Failure, ...], pods: Iterable[PodRecord]) -> tuple[Failure, ...]:
    """The known deaths and those that pods tell of, the newest last."""
    told = [_failure(pod, pod.death) for pod in pods if pod.death is not None]
    seen = {(failure.pod, failure.time) for failure in known}
    fresh = [failure for failure in told if (failure.pod, failure.time) not in seen]
    for failure in sorted(fresh, key=lambda failure: failure.time):
        known = with_failure(known, failure)
    return known


def _failure(pod: PodRecord, death: Death) -> Failure:
    return Failure(
        time=times.text(death.time),
        role=pod.role,
        pod=pod.name,
        exit_code=death.exit_code if death.exit_code >= 0 else None,
        reason=death.reason,
        log_tail=death.message,
    )
