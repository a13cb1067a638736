"""The deadlines of a job: for its beginning, for its end, and for its deletion after that."""

from datetime import datetime, timedelta
from typing import NamedTuple

from disttrain.job.spec import Spec
from disttrain_operator.observed.records import EndPhase, OperatorReason, Outcome


class Since(NamedTuple):
    """From when the time of a job runs; None where it does not."""

    started: datetime | None
    """When its coordinator started, or was resumed."""
    waits: datetime | None
    """When it was created, or was resumed, if training has not begun."""


def next_instant(spec: Spec, since: Since) -> datetime | None:
    return min((each.instant for each in _deadlines(spec, since)), default=None)


def exceeded(spec: Spec, since: Since, now: datetime) -> Outcome | None:
    """The end of a job whose deadline has passed; None while it has not."""
    passed = [each for each in _deadlines(spec, since) if each.instant <= now]
    if not passed:
        return None
    first = min(passed)
    return Outcome(phase=EndPhase.FAILED, reason=first.reason, message=first.message, time=now)


class _Deadline(NamedTuple):
    """When one passes, and what its job fails with then."""

    instant: datetime
    reason: OperatorReason
    message: str


def _deadlines(spec: Spec, since: Since) -> list[_Deadline]:
    found = []
    active, pending = spec.active_deadline_seconds, spec.pending_deadline_seconds
    if active is not None and since.started is not None:
        message = f"it ran for longer than spec.activeDeadlineSeconds ({active})"
        instant = since.started + timedelta(seconds=active)
        found.append(_Deadline(instant, OperatorReason.DEADLINE_EXCEEDED, message))
    if pending is not None and since.waits is not None:
        message = f"training had not begun after spec.pendingDeadlineSeconds ({pending})"
        instant = since.waits + timedelta(seconds=pending)
        found.append(_Deadline(instant, OperatorReason.PENDING_DEADLINE_EXCEEDED, message))
    return found


def deletion_due_at(outcome: Outcome | None, seconds: int | None) -> datetime | None:
    """The instant; None for a job that goes on or is kept."""
    if outcome is None or seconds is None:
        return None
    return outcome.time + timedelta(seconds=seconds)
