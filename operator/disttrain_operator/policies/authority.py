"""Whether a job's processes believe what the operator signs now. Pure.

They believe the authority in the job's Secret, which the operator may not read. So it writes down
at the job's workloads by which one it made the Secret, and at the job if it made another one since.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from disttrain.job import cluster_names
from disttrain_operator.observed.records import ChildRecord, JobRecord
from disttrain_operator.policies.problem import Problem, ProblemType

LOOK_AGAIN = timedelta(minutes=1)
"""For whether somebody has deleted the Secret, as the problem asks for."""


def believed(job: JobRecord, workloads: Iterable[ChildRecord]) -> str:
    """The fingerprint of the authority of the job's Secret.

    Empty: nothing is encrypted, or an operator of before has made it, of which nothing is known.
    """
    return job.authority or next((each.authority for each in workloads if each.authority), "")


def is_another(believed: str, signs_by: str) -> bool:
    """`signs_by`: the authority by which the operator signs for the job now."""
    return bool(believed) and believed != signs_by


def problem(job: JobRecord, believed: str, signs_by: str) -> Problem | None:
    """What to tell of a job whose Secret was made by another master secret."""
    if not is_another(believed, signs_by):
        return None
    message = (
        "the operator's own Secret was replaced, so that no process of the job gets a certificate "
        "that the others believe: those that run train on until theirs expire, within 24 hours; "
        f"delete Secret {cluster_names.launch_secret(job.key.name, job.uid)}, and all processes "
        "start again from what they saved, within a minute or as the job is resumed"
    )
    return Problem(ProblemType.AUTHORITY_REPLACED, message)


def secret_due_at(checked: datetime | None, now: datetime) -> datetime:
    """When to see whether the Secret of such a job is gone: running pods do not tell that."""
    return now if checked is None else checked + LOOK_AGAIN
