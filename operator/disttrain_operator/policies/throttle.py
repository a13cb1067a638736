"""When a status is worth a request: at once for what people wait for, else now and then."""

from datetime import datetime, timedelta
from typing import Any

from disttrain.job.status import Phase
from disttrain_operator import untrusted

_RUNNING = timedelta(seconds=5)
"""Who scales a job that trains wants to see it."""
_STARTING = timedelta(seconds=30)
"""A job that starts is Running soon after all shards, or all replicas, are ready."""
_COUNTING = timedelta(minutes=2)
"""It changes its numbers of pods a dozen times before; of what hinders them a condition tells."""
_OTHERWISE = timedelta(seconds=10)
_CROWDED = timedelta(seconds=10)
_AT_LAST = timedelta(minutes=1)
"""After its creation a job's owner hears of it, however many others there are."""
_INTERVALS = {Phase.RUNNING: _RUNNING, Phase.PENDING: _STARTING}

_NUMBERS = {"replicas", "readyReplicas"}
_START = "startTime"


def due_at(
    before: dict[str, Any], after: dict[str, Any], written: datetime | None, now: datetime
) -> datetime:
    # Deadlines count from what the Job says of its start: that it has one at all can wait.
    waiting = _NUMBERS if _START in before else {*_NUMBERS, _START}
    if written is None or _without(waiting, before) != _without(waiting, after):
        return now
    return max(now, written + interval(before, after))


def first_due_at(
    status: dict[str, Any], created: datetime, now: datetime, *, crowded: bool
) -> datetime:
    """When the first status of a job is to be written.

    Where many jobs wait for their objects it is worth less than those, and is soon another one.
    """
    remarkable = any(map(untrusted.is_true, status.get("conditions", ())))
    if not crowded or remarkable or status.get("phase") != Phase.PENDING:
        return now
    return max(now, min(now + _CROWDED, created + _AT_LAST))


def interval(before: dict[str, Any], after: dict[str, Any]) -> timedelta:
    """The least time between two statuses that differ in what can wait alone."""
    phase = after.get("phase", "")
    if phase == Phase.PENDING and _holding(before) == _holding(after):
        return _COUNTING
    return _INTERVALS.get(phase, _OTHERWISE)


def _holding(status: dict[str, Any]) -> list[Any]:
    """What conditions say but for their words."""
    conditions = status.get("conditions", ())
    return [each.get("status") if isinstance(each, dict) else each for each in conditions]


def _without(names: set[str], status: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in status.items() if name not in names}
    conditions = kept.get("conditions")
    if isinstance(conditions, list):
        # What is available follows from what is ready; the phase tells when training begins.
        kept["conditions"] = [_essence(each) for each in conditions]
    return kept


def _essence(condition: Any) -> Any:
    if not isinstance(condition, dict) or condition.get("reason") not in {"Ready", "NotReady"}:
        return condition
    return condition.get("type")
