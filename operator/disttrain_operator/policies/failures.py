"""The latest deaths of a job's processes, kept after the pods are gone."""

from collections.abc import Iterable

from disttrain.job.status import MOST_FAILURES, Failure
from disttrain_operator import times
from disttrain_operator.observed.records import Death, PodRecord


def latest(known: tuple[Failure, ...], pods: Iterable[PodRecord]) -> tuple[Failure, ...]:
    """The known deaths and those that pods tell of, the newest last; the same for the same."""
    told = [_failure(pod, death) for pod in pods for death in pod.deaths]
    # What was left out before as too old is told again: only the time says which are the latest.
    # What is told last holds: that a process had no memory a kubelet may learn a moment later.
    found = {(failure.time, failure.pod): failure for failure in (*known, *told)}
    return tuple(failure for _, failure in sorted(found.items()))[-MOST_FAILURES:]


def _failure(pod: PodRecord, death: Death) -> Failure:
    return Failure(
        time=times.text(death.time),
        role=pod.role,
        pod=pod.name,
        exit_code=death.exit_code if death.exit_code >= 0 else None,
        reason=death.reason,
        log_tail=death.message,
    )
