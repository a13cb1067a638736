"""What keeps a job from running, or from running as asked for, in words for its conditions."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from disttrain_operator.kinds import Kind
from disttrain_operator.observed.records import ChildRecord, JobRecord


class ProblemType(StrEnum):
    """Types of conditions that are there only while they hold."""

    INVALID_MANIFEST = "InvalidManifest"
    """The schema accepts the manifest, but the rules between its fields do not."""
    INVALID_TEMPLATE = "InvalidTemplate"
    """The API server refuses a pod template, or the administrator does not allow what it asks."""
    NOT_SUPPORTED = "NotSupported"
    """The manifest asks for what cannot be done yet."""
    NO_VOLUME = "NoCheckpointVolume"
    """Nobody says where checkpoints shall lie."""
    VOLUME_UNBOUND = "VolumeUnbound"
    """The claim for checkpoints has no volume."""
    WAITING_FOR_PREVIOUS = "WaitingForPrevious"
    """Objects of a deleted job of the same name are still there."""
    NAME_CONFLICT = "NameConflict"
    """An object of somebody else has the name of a child."""
    AUTHORITY_REPLACED = "AuthorityReplaced"
    """The job's processes believe another authority than the operator signs by."""
    CANNOT_START = "CannotStart"
    """A pod does not start, and will not until somebody does something."""
    RECONCILE_ERROR = "ReconcileError"
    """The API server refuses or fails what the operator asks for, again and again."""


BLOCKING = frozenset(
    {
        ProblemType.INVALID_MANIFEST,
        ProblemType.INVALID_TEMPLATE,
        ProblemType.NOT_SUPPORTED,
        ProblemType.NO_VOLUME,
        ProblemType.WAITING_FOR_PREVIOUS,
        ProblemType.NAME_CONFLICT,
    }
)
"""While one of them holds, nothing is created or changed."""

CONFLICTS = frozenset({ProblemType.NAME_CONFLICT, ProblemType.WAITING_FOR_PREVIOUS})
"""Of those, what the objects of others are in the way for."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; its message says what to do."""

    type: ProblemType
    message: str
    reason: str = ""
    """A word for programs; empty: the type itself."""


def first_of_each_type(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """What a status can tell: it has one condition of a type."""
    found: dict[ProblemType, Problem] = {}
    for each in problems:
        found.setdefault(each.type, each)
    return tuple(found.values())


def conflict(job: JobRecord, children: Iterable[ChildRecord]) -> Problem | None:
    """What keeps the job from having its own children. A claim without an owner is taken over."""
    foreign = [each for each in children if each.owner_uid != job.uid and not _stays(job, each)]
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
