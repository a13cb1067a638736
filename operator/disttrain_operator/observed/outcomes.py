"""How a job ended: as its coordinator wrote it, as its status and its workloads tell."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from disttrain.job.status_section import ConditionStatus
from disttrain_operator import times, untrusted
from disttrain_operator.observed.records import EndPhase, Outcome

_LONGEST_MESSAGE = 1000
_LONGEST_REASON = 64
_YEARS = range(1970, 3000)
"""In which a job may have ended: nothing can be added to what a datetime holds at most."""


def from_conditions(
    conditions: Mapping[str, dict[str, Any]], otherwise: datetime
) -> Outcome | None:
    """The outcome that a job's conditions, by their types, tell; None while it has not ended.

    `otherwise` is its time if that one is spoiled: the same each time, or each were a change.
    """
    for phase in EndPhase:
        told = conditions.get(phase.value, {})
        if told.get("status") == ConditionStatus.TRUE:
            said = {**told, "phase": phase.value}
            return _said(said, _time(told.get("lastTransitionTime")) or otherwise)
    return None


def from_annotation(content: object, otherwise: datetime) -> Outcome | None:
    """The outcome that a stopped workload tells; None for anything else. `otherwise` as above."""
    found = untrusted.written(content)
    return _said(found, _time(found.get("time")) or otherwise)


def to_annotation(outcome: Outcome) -> str:
    """The annotation's text; `from_annotation` gives the same value back."""
    content = {
        "phase": outcome.phase.value,
        "reason": outcome.reason,
        "message": outcome.message,
        "time": outcome.time.isoformat(),
    }
    return json.dumps(content)


def from_termination(content: object, finished: datetime) -> Outcome | None:
    """What a coordinator wrote as it ended; None for Stopped, which is no end of the job."""
    return _said(untrusted.written(content), finished)


def _said(found: dict[str, Any], time: datetime) -> Outcome | None:
    # No set: what somebody wrote there may have no hash.
    if found.get("phase") not in tuple(EndPhase):
        return None
    return Outcome(
        phase=EndPhase(found["phase"]),
        reason=_reason(found.get("reason"), found["phase"]),
        message=_message(found.get("message")),
        time=time,
    )


def _reason(value: object, otherwise: str) -> str:
    """A reason as conditions allow it: letters and digits, beginning with a letter."""
    kept = "".join(each for each in str(value or "") if each.isascii() and each.isalnum())
    return kept[:_LONGEST_REASON] if kept[:1].isalpha() else otherwise


def _message(value: object) -> str:
    """As UTF-8 has it: escapes in JSON, and names of files, may be half characters."""
    kept = value[:_LONGEST_MESSAGE] if isinstance(value, str) else ""
    return kept.encode(errors="replace").decode()


def _time(value: object) -> datetime | None:
    found = times.parse(value)
    return found if found is not None and found.year in _YEARS else None
