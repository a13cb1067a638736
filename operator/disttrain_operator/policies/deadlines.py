"""The deadlines of a job: for its beginning, for its end, and for its deletion after that."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from disttrain.job.spec import Spec
from disttrain_operator.observed.records import OperatorReason, Outcome


class Since(NamedTuple):
    """From when the time of a job runs; None where it does not."""

    started: datetime | None
    """When its coordinator started, or was resumed."""
    waits: datetime | None
    """When it was created, or was resumed, if training has not begun."""


def next_instant(spec: Spec, since: Since) -> datetime | None:
    return min((each.time for each in _deadlines(spec, since)), default=None)


def exceeded(spec: Spec, since: Since, now: datetime) -> Outcome | None:
    """The end of a job whose deadline has passed; None while it has not."""
    passed = [each for each in _deadlines(spec, since) if each.time <= now]
    first = min(passed, key=lambda each: (each.time, each.reason), default=None)
    return first and replace(first, time=now)


def _deadlines(spec: Spec, since: Since) -> list[Outcome]:
    """How the job ends as each of its deadlines passes."""
    found = []
    active, pending = spec.active_deadline_seconds, spec.pending_deadline_seconds
    if active is not None and since.started is not None:
        message = f"it ran for longer than spec.activeDeadlineSeconds ({active})"
        instant = since.started + timedelta(seconds=active)
        found.append(Outcome.failed(OperatorReason.DEADLINE_EXCEEDED, message, instant))
    if pending is not None and since.waits is not None:
        message = f"training had not begun after spec.pendingDeadlineSeconds ({pending})"
        instant = since.waits + timedelta(seconds=pending)
        found.append(Outcome.failed(OperatorReason.PENDING_DEADLINE_EXCEEDED, message, instant))
    return found


def deletion_due_at(outcome: Outcome | None, seconds: int | None) -> datetime | None:
    """The instant; None for a job that goes on or is kept."""
    if outcome is None or seconds is None:
        return None
    return outcome.time + timedelta(seconds=seconds)
