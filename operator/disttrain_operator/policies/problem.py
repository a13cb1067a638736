"""What keeps a job from running, or from running as asked for, in words for its conditions."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


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
