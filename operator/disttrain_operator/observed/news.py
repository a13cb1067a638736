"""What is new by another sight of an object, as far as it decides how soon its job is looked at."""

from datetime import timedelta
from enum import Enum
from typing import Final

from disttrain_operator.kinds import Kind
from disttrain_operator.observed.records import ChildRecord, JobRecord, PodRecord

Record = JobRecord | ChildRecord | PodRecord

_NUMBERS: Final = frozenset({"ready", "remaining"})
_BEGINNING: Final = frozenset({"ready", "phase", "waiting", "detail", "unschedulable"})


class News(Enum):
    """How much is new."""

    NOTHING = "nothing"
    """But perhaps the version."""
    NUMBERS = "numbers"
    """How many pods are there and ready, or how far they have come: only the status tells it."""
    DECISIVE = "decisive"
    """Something may have to be done."""

    def wait_for(self, job: JobRecord | None) -> timedelta | None:
        """The wait before a look; None for no need. `job` is None where only leftovers are."""
        if job is None or self is News.NOTHING:
            return None
        # Of a job that has ended only the numbers change, as its pods go one by one.
        return _AFTER[News.NUMBERS if job.outcome is not None else self]


_AFTER: Final = {News.DECISIVE: timedelta(seconds=1), News.NUMBERS: timedelta(seconds=3)}
"""Events of a job's objects come in bursts; one look, and one status, answers them all."""


def compare(old: Record | None, new: Record) -> News:
    """What is new; `old` is None for an object that was not known."""
    if isinstance(new, PodRecord) and _begins(new) and (old is None or old.uid != new.uid):
        return News.NUMBERS
    if old is None:
        return News.DECISIVE
    changed = {name for name in new.__slots__ if getattr(old, name) != getattr(new, name)}
    changed.discard("version")
    if not changed:
        return News.NOTHING
    return News.NUMBERS if _only_numbers(changed, new) else News.DECISIVE


def _only_numbers(changed: set[str], new: Record) -> bool:
    if isinstance(new, PodRecord):
        return changed <= _BEGINNING and _begins(new)
    # A Job's numbers tell whether a coordinator is there, for which others wait.
    return isinstance(new, ChildRecord) and new.kind is not Kind.Job and changed <= _NUMBERS


def _begins(pod: PodRecord) -> bool:
    return pod.phase in {"", "Pending", "Running"} and pod.gone_at is None and pod.death is None
