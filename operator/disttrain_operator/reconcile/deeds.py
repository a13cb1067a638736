"""What was done to a job's objects, in words for its Events and for the log. Pure."""

from dataclasses import dataclass

from disttrain_operator.kinds import Kind
from disttrain_operator.observed.records import ChildRecord, JobRecord
from disttrain_operator.reconcile.actions import RemovePod, Renew, Rescale, RestartAll


@dataclass(frozen=True, slots=True)
class EventText:
    """What an Event says: that something was done, or began to hold."""

    reason: str
    """A word for programs."""
    message: str
    good: bool = True
    """Whether it is the normal course of things."""
    is_told: bool = True
    """Whether an Event tells it; otherwise the log alone does."""
    about: str = ""
    """Kind and name of an object of the job: of each a repetition is counted."""


def removed(pod: RemovePod, why: str) -> EventText:
    message = (
        f"pod {pod.name} was deleted by force: {why}, and {pod.because}; its process is fenced "
        "should it still run"
    )
    return EventText("PodRemoved", message, good=False, about=f"Pod {pod.name}")


def restarted(restart: RestartAll) -> EventText:
    message = (
        f"all {len(restart.pods)} processes are started again from the latest checkpoint: "
        f"{restart.because}"
    )
    return EventText("JobRestarted", message, good=False)


def renewed(renew: Renew) -> EventText:
    """A workload that cannot become what it shall be."""
    kind, name = renew.child.key
    message = f"{kind.name} {name} was deleted and made anew: {renew.because}"
    return EventText("JobRenewed", message, about=f"{kind.name} {name}")


def taken_back(made: ChildRecord, taken: ChildRecord) -> EventText:
    """A workload that was made before it was seen that another's name is taken."""
    what = f"{made.kind.name} {made.name}"
    message = (
        f"{what} was made and deleted again: the name of {taken.kind.name} {taken.name} is taken, "
        "and of a job that cannot run as a whole nothing runs"
    )
    return EventText("TakenBack", message, good=False, about=what)


def made_again(kind: Kind, name: str) -> EventText:
    """A child that was deleted by somebody else."""
    message = f"{kind.name} {name} of the running job was missing, and was made again"
    return EventText("ChildRecreated", message, good=False, about=f"{kind.name} {name}")


def scaled(rescale: Rescale, seen: ChildRecord | None) -> EventText:
    kind, name = rescale.child
    before = "" if seen is None else f" from {seen.wanted}"
    message = f"{kind.name} {name} was scaled{before} to {rescale.wanted}: {rescale.because}"
    return EventText("Scaled", message, is_told=rescale.is_told, about=f"{kind.name} {name}")


def deleted(job: JobRecord) -> EventText:
    ended = "" if job.outcome is None else f" {job.outcome.phase.value} at {job.outcome.time}"
    message = (
        f"the job, which ended{ended}, was deleted by spec.ttlSecondsAfterFinished with all that "
        "it had but its volume"
    )
    return EventText("JobDeleted", message)
