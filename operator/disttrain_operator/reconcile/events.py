"""What people are told of a job by Events, each once. Pure."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from disttrain.job.conditions import Condition, ConditionStatus, ConditionType
from disttrain.job.status import Phase
from disttrain_operator import times
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.records import JobRecord
from disttrain_operator.policies.problem import ProblemType
from disttrain_operator.reconcile import report

_LONGEST_NOTE = 1000
_COMPONENT = "disttrain-operator"
_GOOD = {ConditionType.COMPLETE, ConditionType.SUSPENDED}
_TOLD = {*_GOOD, ConditionType.FAILED, *ProblemType}
"""Conditions that people are told of when they begin to hold."""


@dataclass(frozen=True, slots=True)
class _News:
    reason: str
    message: str
    good: bool


def of(job: JobRecord, status: dict[str, Any], now: datetime) -> list[dict[str, Any]]:
    """The Events of a change of status.

    Their names follow from job, generation and reason, so that none is made twice.
    """
    return [_event(job, news, now) for news in _news(job, status)]


def _news(job: JobRecord, status: dict[str, Any]) -> list[_News]:
    before = report.conditions_of(job.status)
    after = report.conditions_of(status)
    found = [_begun(each) for kind, each in after.items() if _begins(kind, before.get(kind), each)]
    if job.status.get("phase") == Phase.PENDING and status.get("phase") == Phase.RUNNING:
        found.append(_News("Running", "all shards serve and the first replica trains", good=True))
    if not job.status and status.get("phase") == Phase.PENDING:
        found.append(_News("Accepted", "the operator looks after the job", good=True))
    suspended = before.get(ConditionType.SUSPENDED)
    if _holds(suspended) and not _holds(after.get(ConditionType.SUSPENDED)):
        found.append(_News("Resumed", "the job goes on from its latest checkpoint", good=True))
    return found


def _begins(kind: str, before: Condition | None, after: Condition) -> bool:
    return kind in _TOLD and _holds(after) and not (_holds(before) and _same(before, after))


def _same(before: Condition | None, after: Condition) -> bool:
    return before is not None and before.reason == after.reason


def _holds(condition: Condition | None) -> bool:
    return condition is not None and condition.status is ConditionStatus.TRUE


def _begun(condition: Condition) -> _News:
    reason = condition.reason
    if condition.type in set(ConditionType):
        reason = condition.type
    return _News(reason, condition.message or reason, good=condition.type in _GOOD)


def _event(job: JobRecord, news: _News, now: datetime) -> dict[str, Any]:
    told = f"{job.uid}/{job.generation}/{news.reason}"
    name = f"{job.key.name}.{hashlib.sha256(told.encode()).hexdigest()[:16]}"
    return {
        "apiVersion": Kind.Event.value.api_version,
        "kind": Kind.Event.name,
        "metadata": {"name": name, "namespace": job.key.namespace},
        "involvedObject": {
            "apiVersion": Kind.DistTrainJob.value.api_version,
            "kind": Kind.DistTrainJob.name,
            "namespace": job.key.namespace,
            "name": job.key.name,
            "uid": job.uid,
        },
        "reason": news.reason,
        "message": news.message[-_LONGEST_NOTE:],
        "type": "Normal" if news.good else "Warning",
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "reportingInstance": _COMPONENT,
        "firstTimestamp": times.text(now),
        "lastTimestamp": times.text(now),
        "count": 1,
    }
