"""Restarts of processes: counted per pod, kept in an annotation, and limited per role."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from disttrain.job.failure_policy import MaxRestarts
from disttrain.job.names import Role
from disttrain_operator.observed.records import EndPhase, Outcome, PodRecord

_UID_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted."""

    totals: Mapping[Role, int]
    annotation: str
    """The same for the next time; empty while nothing was counted."""


def count(annotation: str, pods: Iterable[PodRecord]) -> Counted:
    """Add what pods restarted since the annotation was written."""
    before = _parsed(annotation)
    totals = {role: before.get(role, ({}, 0))[1] for role in Role}
    seen: dict[Role, dict[str, int]] = {role: {} for role in Role}
    for pod in pods:
        if pod.restarts == 0:
            continue
        uid = pod.uid[:_UID_CHARACTERS]
        known = before.get(pod.role, ({}, 0))[0].get(uid, 0)
        totals[pod.role] += max(0, pod.restarts - known)
        seen[pod.role][uid] = max(pod.restarts, known)
    return Counted(totals, _text(totals, seen))


def exceeded(counted: Counted, most: MaxRestarts, now: datetime) -> Outcome | None:
    """The end of a job of which a role failed more often than allowed."""
    budgets = {
        Role.SHARD: most.shard,
        Role.REPLICA: most.replica,
        Role.COORDINATOR: most.coordinator,
    }
    for role, budget in budgets.items():
        if counted.totals[role] > budget:
            message = (
                f"{role}s were restarted {counted.totals[role]} times, more than "
                f"spec.failurePolicy.maxRestarts.{role} ({budget}); status.failures says why"
            )
            return Outcome(
                phase=EndPhase.FAILED,
                reason="TooManyRestarts",
                message=message,
                time=now,
                by_operator=True,
            )
    return None


def _text(totals: Mapping[Role, int], seen: Mapping[Role, Mapping[str, int]]) -> str:
    content = {
        role.value: {"total": totals[role], "pods": seen[role]} for role in Role if totals[role]
    }
    return json.dumps(content, sort_keys=True) if content else ""


def _parsed(annotation: str) -> dict[Role, tuple[dict[str, int], int]]:
    try:
        content = json.loads(annotation) if annotation else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {role: _entry(content.get(role.value)) for role in Role}


def _entry(value: Any) -> tuple[dict[str, int], int]:
    if not isinstance(value, dict):
        return {}, 0
    pods, total = value.get("pods"), value.get("total")
    counts = pods if isinstance(pods, dict) else {}
    known = {str(uid): number for uid, number in counts.items() if isinstance(number, int)}
    return known, total if isinstance(total, int) else 0
