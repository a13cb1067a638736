"""The operator's part of a job's status. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from disttrain.job import cluster_labels
from disttrain.job.names import Role
from disttrain.job.status import (
    COORDINATOR_FIELDS,
    MOST_FAILURES,
    Failure,
    JobStatus,
    Phase,
    Restarts,
)
from disttrain_operator import times
from disttrain_operator.observed.records import Death, EndPhase, JobRecord, Outcome, PodRecord
from disttrain_operator.policies import conditions, restarts
from disttrain_operator.policies.conditions import Situation
from disttrain_operator.policies.outcome import coordinator_job
from disttrain_operator.policies.restarts import Counted
from disttrain_operator.policies.stages import Stage

FIELDS: Final = frozenset(
    field.alias or name
    for name, field in JobStatus.model_fields.items()
    if (field.alias or name) not in COORDINATOR_FIELDS
)
"""The fields of the status that the operator writes."""


def has_begun(job: JobRecord) -> bool:
    return job.training or job.phase == Phase.RUNNING


def status(situation: Situation, counted: Counted, now: datetime) -> dict[str, Any]:
    """The operator's fields; the same for the same situation, so that nothing is written twice."""
    before = conditions.status_before(situation.job.status)
    pods = situation.observed.pods_of(situation.job)
    known = {condition.type: condition for condition in before.conditions}
    made = JobStatus(
        observed_generation=situation.job.generation,
        phase=_phase(situation, before.phase),
        strategy=situation.spec.strategy.rule.name,
        shards=situation.spec.shards,
        conditions=conditions.of(situation, known, now),
        start_time=_start_time(situation),
        completion_time=_completion_time(situation.outcome),
        restarts=Restarts(**{role.value: tally.total for role, tally in counted.tallies.items()}),
        replicas=0 if _is_over(situation) else situation.replicas_there,
        ready_replicas=0 if _is_over(situation) else situation.replicas[0],
        selector=_selector(situation),
        failures=latest_failures(before.failures, pods),
    )
    return made.as_json()


def _selector(situation: Situation) -> str:
    """Selects as many pods as there are replicas: an autoscaler takes the one for the other."""
    job, processes = situation.job, situation.spec.replicas.processes
    own = cluster_labels.pods_of(job.key.name, job.uid, Role.REPLICA)
    speakers = cluster_labels.speakers_of(job.key.name, job.uid)
    return cluster_labels.selector_text(own if processes == 1 else speakers)


def _phase(situation: Situation, before: Phase | None) -> Phase:
    if situation.outcome is not None:
        return Phase(situation.outcome.phase.value)
    if situation.stage is Stage.STOP_ALL:
        return Phase.SUSPENDED
    if situation.stage is Stage.STOP_COORDINATOR:
        return before or Phase.PENDING
    shards_serve = situation.shards[0] >= situation.shards[1]
    trains = shards_serve and situation.replicas[0] > 0
    return Phase.RUNNING if trains or before is Phase.RUNNING else Phase.PENDING


def _start_time(situation: Situation) -> str | None:
    keeper = coordinator_job(situation.job, situation.observed)
    return times.text(keeper.started) if keeper is not None and keeper.started else None


def _completion_time(outcome: Outcome | None) -> str | None:
    ended_well = outcome is not None and outcome.phase is EndPhase.COMPLETE
    return times.text(outcome.time) if outcome is not None and ended_well else None


def _is_over(situation: Situation) -> bool:
    """Whether all were told to end: that they go one by one is worth no other status."""
    return situation.outcome is not None and situation.stage is not Stage.STOP_COORDINATOR


def latest_failures(known: tuple[Failure, ...], pods: Iterable[PodRecord]) -> tuple[Failure, ...]:
    """The known deaths and those that pods tell of, the newest last; the same for the same."""
    told = [
        _failure(pod, death)
        for pod in pods
        for death in pod.deaths
        if not restarts.is_consequence(pod, death)
    ]
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
