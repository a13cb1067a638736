"""The two deadlines of a job: for its beginning and for its end."""

from datetime import datetime, timedelta
from typing import NamedTuple

from disttrain.job.spec import Spec
from disttrain_operator.observed.records import EndPhase, Outcome


def next_instant(spec: Spec, since: datetime | None, *, begun: bool) -> datetime | None:
    """When the nearest deadline passes. `since`: when its coordinator started, or None."""
    return min((each.instant for each in _deadlines(spec, since, begun=begun)), default=None)


def exceeded(spec: Spec, since: datetime | None, now: datetime, *, begun: bool) -> Outcome | None:
    """The end of a job whose deadline has passed; None while it has not."""
    passed = [each for each in _deadlines(spec, since, begun=begun) if each.instant <= now]
    if not passed:
        return None
    first = min(passed)
    return Outcome(
        phase=EndPhase.FAILED,
        reason=first.reason,
        message=first.message,
        time=now,
        by_operator=True,
    )


class _Deadline(NamedTuple):
    """When one passes, and what its job fails with then."""

    instant: datetime
    reason: str
    message: str


def _deadlines(spec: Spec, since: datetime | None, *, begun: bool) -> list[_Deadline]:
    if since is None:
        return []
    found = []
    active, pending = spec.active_deadline_seconds, spec.pending_deadline_seconds
    if active is not None:
        message = f"it ran for longer than spec.activeDeadlineSeconds ({active})"
        instant = since + timedelta(seconds=active)
        found.append(_Deadline(instant, "DeadlineExceeded", message))
    if pending is not None and not begun:
        message = f"training had not begun after spec.pendingDeadlineSeconds ({pending})"
        instant = since + timedelta(seconds=pending)
        found.append(_Deadline(instant, "PendingDeadlineExceeded", message))
    return found
