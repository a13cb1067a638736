"""How a job ended, if it did: as it was recorded, as its coordinator said, as its Job shows."""

from datetime import datetime

from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import ChildRecord, EndPhase, JobRecord, Outcome, PodRecord

UNKNOWN = "OutcomeUnknown"


def found(job: JobRecord, observed: Observed, now: datetime) -> Outcome | None:
    """The outcome; the recorded one counts, whatever was seen since.

    Recorded in the status, and in the workloads should somebody else overwrite that.
    """
    if job.outcome is not None:
        return job.outcome
    recorded = [each.outcome for each in observed.children_of(job) if each.outcome]
    if recorded:
        return recorded[0]
    pods = coordinators(job, observed)
    said = [pod.outcome for pod in pods if pod.outcome is not None]
    if said:
        return said[0]
    if job.uid in observed.decided:
        return observed.decided[job.uid]
    ended = coordinator_job(job, observed)
    if ended is None or ended.ended is None or any(not pod.over for pod in pods):
        return None
    return _from_job(ended, now)


def is_guess(outcome: Outcome | None) -> bool:
    """Whether it follows from what was not seen: it must be looked for before it is written."""
    return outcome is not None and (outcome.by_operator or outcome.reason == UNKNOWN)


def coordinators(job: JobRecord, observed: Observed) -> list[PodRecord]:
    return [pod for pod in observed.pods_of(job) if pod.role is Role.COORDINATOR]


def coordinator_job(job: JobRecord, observed: Observed) -> ChildRecord | None:
    return next(iter(observed.children_of(job, (Kind.Job,))), None)


def _from_job(ended: ChildRecord, now: datetime) -> Outcome:
    if ended.ended is EndPhase.FAILED:
        message = f"Job {ended.name} failed: {ended.trouble or 'it does not say why'}"
        return Outcome.failed("CoordinatorFailed", message, now)
    # A coordinator ends with code 0 for every decided end, so the code does not say which.
    message = (
        "the coordinator ended, but its pod was deleted before its last words were read; "
        "summary.json in the job's folder on the volume says how"
    )
    return Outcome.failed(UNKNOWN, message, now)


def coordinator_in_backoff(job: JobRecord, observed: Observed) -> ChildRecord | None:
    """The Job that has no pod and whose controller backs off; None if there is none.

    After each pod of a Job that failed, its controller waits twice as long as before, up to ten
    minutes, and forgets that only with the Job. Whoever is suspended or drained ends as a failed
    pod. One that is still there ended by itself: whatever ails it, waiting is right.
    """
    keeper = coordinator_job(job, observed)
    if keeper is None or keeper.deleting or keeper.ended is not None:
        return None
    waits = keeper.failed > 0 and keeper.remaining == 0
    return keeper if waits and not coordinators(job, observed) else None
