"""Objects that stand where a child should: of the job before, or of somebody else."""

from collections.abc import Iterable

from disttrain_operator.kinds import Kind
from disttrain_operator.observed.records import ChildRecord, JobRecord
from disttrain_operator.policies.problem import Problem, ProblemType


def conflict(job: JobRecord, children: Iterable[ChildRecord]) -> Problem | None:
    """What keeps the job from having its own children. A claim without an owner is taken over."""
    foreign = [child for child in children if child.owner_uid != job.uid]
    foreign = [child for child in foreign if not _stays(job, child)]
    strangers = [child for child in foreign if not _of_previous(job, child)]
    if strangers:
        return _name_conflict(strangers[0])
    return _waiting(foreign) if foreign else None


def _stays(job: JobRecord, child: ChildRecord) -> bool:
    """Whether a child is a claim, and none that is about to go with the job before."""
    return child.kind is Kind.PersistentVolumeClaim and not _of_previous(job, child)


def _of_previous(job: JobRecord, child: ChildRecord) -> bool:
    return child.owned_by == f"{Kind.DistTrainJob.name} {job.key.name}"


def _name_conflict(child: ChildRecord) -> Problem:
    owner = child.owned_by or "somebody else"
    message = (
        f"{child.kind.name} {child.name} is there already and belongs to {owner}; delete it, or "
        "give the job another name"
    )
    return Problem(ProblemType.NAME_CONFLICT, message)


def _waiting(children: list[ChildRecord]) -> Problem:
    names = ", ".join(sorted(f"{child.kind.name} {child.name}" for child in children)[:3])
    message = (
        f"a deleted job of the same name still has {len(children)} objects ({names}); this job "
        "starts when they are gone"
    )
    return Problem(ProblemType.WAITING_FOR_PREVIOUS, message)
