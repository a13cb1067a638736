"""What was done to a job's objects, in words for its Events and for the log. Pure."""

from dataclasses import dataclass

from disttrain_operator.kinds import Kind
from disttrain_operator.observed.records import ChildRecord, JobRecord
from disttrain_operator.reconcile.actions import RemovePod, Renew, Rescale, RestartAll


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that was done."""

    reason: str
    """A word for programs."""
    about: str
    """Kind and name of the object: of each a repetition is counted."""
    message: str
    good: bool = True
    """Whether it is the normal course of things."""
    is_told: bool = True
    """Whether an Event tells it; otherwise the log alone does."""


def removed(pod: RemovePod, why: str) -> Deed:
    message = (
        f"pod {pod.name} was deleted by force: {why}, and {pod.because}; its process is fenced "
        "should it still run"
    )
    return Deed("PodRemoved", f"Pod {pod.name}", message, good=False)


def restarted(restart: RestartAll) -> Deed:
    message = (
        f"all {len(restart.pods)} processes are started again from the latest checkpoint: "
        f"{restart.because}"
    )
    return Deed("JobRestarted", "", message, good=False)


def renewed(renew: Renew) -> Deed:
    """A workload that cannot become what it shall be."""
    kind, name = renew.child.key
    message = f"{kind.name} {name} was deleted and made anew: {renew.because}"
    return Deed("JobRenewed", f"{kind.name} {name}", message)


def taken_back(made: ChildRecord, taken: ChildRecord) -> Deed:
    """A workload that was made before it was seen that another's name is taken."""
    what = f"{made.kind.name} {made.name}"
    message = (
        f"{what} was made and deleted again: the name of {taken.kind.name} {taken.name} is taken, "
        "and of a job that cannot run as a whole nothing runs"
    )
    return Deed("TakenBack", what, message, good=False)


def made_again(kind: Kind, name: str) -> Deed:
    """A child that was deleted by somebody else."""
    message = f"{kind.name} {name} of the running job was missing, and was made again"
    return Deed("ChildRecreated", f"{kind.name} {name}", message, good=False)


def scaled(rescale: Rescale, seen: ChildRecord | None) -> Deed:
    kind, name = rescale.child
    before = "" if seen is None else f" from {seen.wanted}"
    message = f"{kind.name} {name} was scaled{before} to {rescale.wanted}: {rescale.because}"
    return Deed("Scaled", f"{kind.name} {name}", message, is_told=rescale.is_told)


def deleted(job: JobRecord) -> Deed:
    ended = "" if job.outcome is None else f" {job.outcome.phase.value} at {job.outcome.time}"
    message = (
        f"the job, which ended{ended}, was deleted by spec.ttlSecondsAfterFinished with all that "
        "it had but its volume"
    )
    return Deed("JobDeleted", "", message)
