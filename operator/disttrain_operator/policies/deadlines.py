"""The two deadlines of a job: for its beginning and for its end."""

from datetime import datetime, timedelta

from disttrain.job.spec import Spec
from disttrain_operator.observed.records import EndPhase, Outcome


def next_instant(spec: Spec, since: datetime | None, *, begun: bool) -> datetime | None:
    """When the nearest deadline passes. `since`: when its coordinator started, or None."""
    instants = [instant for instant, _ in _deadlines(spec, since, begun=begun)]
    return min(instants, default=None)


def exceeded(spec: Spec, since: datetime | None, now: datetime, *, begun: bool) -> Outcome | None:
    """The end of a job whose deadline has passed; None while it has not."""
    passed = [each for each in _deadlines(spec, since, begun=begun) if each[0] <= now]
    if not passed:
        return None
    _, message = min(passed)
    reason = "DeadlineExceeded" if "active" in message else "PendingDeadlineExceeded"
    return Outcome(
        phase=EndPhase.FAILED, reason=reason, message=message, time=now, by_operator=True
    )


def _deadlines(spec: Spec, since: datetime | None, *, begun: bool) -> list[tuple[datetime, str]]:
    if since is None:
        return []
    found = []
    active, pending = spec.active_deadline_seconds, spec.pending_deadline_seconds
    if active is not None:
        message = f"it ran for longer than spec.activeDeadlineSeconds ({active})"
        found.append((since + timedelta(seconds=active), message))
    if pending is not None and not begun:
        message = f"training had not begun after spec.pendingDeadlineSeconds ({pending})"
        found.append((since + timedelta(seconds=pending), message))
    return found
