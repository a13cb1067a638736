"""The conditions of a job: what is true of it, why, and what to do."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from disttrain.job.names import Role
from disttrain.job.spec import Spec
from disttrain.job.status import JobStatus
from disttrain.job.status_section import Condition, ConditionStatus, ConditionType
from disttrain_operator import times
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import ChildRecord, EndPhase, JobRecord, Outcome
from disttrain_operator.policies.problem import Problem
from disttrain_operator.policies.stages import Stage

_RESUMED = "Resumed"
"""The reason of a job that was suspended and runs again: its deadline counts from then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """What the conditions, and the rest of a status, are made from."""

    job: JobRecord
    observed: Observed
    spec: Spec
    stage: Stage
    outcome: Outcome | None
    problems: tuple[Problem, ...]

    @property
    def shards(self) -> tuple[int, int]:
        """Ready and wanted."""
        return sum(each.ready for each in self._keepers(Role.SHARD)), self.spec.shards

    @property
    def replicas(self) -> tuple[int, int]:
        """Ready and wanted. One of several processes is ready when all of them are."""
        processes = self.spec.replicas.processes
        ready = sum(each.ready // processes for each in self._keepers(Role.REPLICA))
        return ready, self.spec.replicas.count

    @property
    def replicas_there(self) -> int:
        """Those of which a process is there, even if it is ending."""
        processes = self.spec.replicas.processes
        return sum(math.ceil(each.remaining / processes) for each in self._keepers(Role.REPLICA))

    def _keepers(self, role: Role) -> list[ChildRecord]:
        return self.observed.keepers_of(self.job, role)


@dataclass(frozen=True, slots=True)
class _Fact:
    type: str
    holds: bool
    reason: str
    message: str = ""
    since: datetime | None = None
    """When it began to hold; None: it is seen now."""


def of(
    situation: Situation, before: Mapping[str, Condition], now: datetime
) -> tuple[Condition, ...]:
    """The conditions; one whose status did not change keeps the time of its last change."""
    resumed = _was_resumed(before.get(ConditionType.SUSPENDED))
    facts = [*_lasting(situation, resumed=resumed), *_problems(situation.problems)]
    seen = situation.job.generation
    return tuple(_condition(fact, before.get(fact.type), seen, now) for fact in facts)


def resumed_at(status: dict[str, Any], now: datetime) -> datetime | None:
    """When a job was resumed last, by its status; `now` if that does not tell of it yet."""
    suspended = by_type(status).get(ConditionType.SUSPENDED)
    if suspended is None or not _was_resumed(suspended):
        return None
    if suspended.status is ConditionStatus.TRUE:
        return now
    return times.parse(suspended.last_transition_time)


def _was_resumed(suspended: Condition | None) -> bool:
    if suspended is None:
        return False
    return suspended.status is ConditionStatus.TRUE or suspended.reason == _RESUMED


def _lasting(situation: Situation, *, resumed: bool) -> Iterable[_Fact]:
    yield _suspended(situation, resumed=resumed)
    yield _available(ConditionType.PARAMETERS_AVAILABLE, "shards", situation.shards, situation)
    yield _available(ConditionType.REPLICAS_AVAILABLE, "replicas", situation.replicas, situation)
    yield _degraded(situation)
    for phase in EndPhase:
        yield _ended(phase, situation.outcome)


def _suspended(situation: Situation, *, resumed: bool) -> _Fact:
    kind = ConditionType.SUSPENDED
    if situation.outcome is None and situation.stage is Stage.RUN and resumed:
        return _Fact(kind, holds=False, reason=_RESUMED)
    if situation.outcome is not None or situation.stage is Stage.RUN:
        return _Fact(kind, holds=False, reason="NotSuspended")
    if situation.stage is Stage.STOP_COORDINATOR:
        message = "the coordinator writes a checkpoint and ends; shards and replicas follow"
        return _Fact(kind, holds=False, reason="Suspending", message=message)
    message = "spec.suspend is true; the job goes on from its checkpoint when it is false"
    return _Fact(kind, holds=True, reason="Suspended", message=message)


def _available(
    kind: ConditionType, what: str, numbers: tuple[int, int], situation: Situation
) -> _Fact:
    ready, wanted = numbers
    if situation.stage is not Stage.RUN:
        return _Fact(kind, holds=False, reason="Stopped")
    if ready >= wanted:
        return _Fact(kind, holds=True, reason="Ready", message=f"{wanted} of {wanted} {what}")
    return _Fact(kind, holds=False, reason="NotReady", message=f"{ready} of {wanted} {what}")


def _degraded(situation: Situation) -> _Fact:
    kind = ConditionType.DEGRADED
    if not situation.problems:
        return _Fact(kind, holds=False, reason="AsExpected")
    first = situation.problems[0]
    return _Fact(kind, holds=True, reason=first.reason or first.type.value, message=first.message)


def _ended(phase: EndPhase, outcome: Outcome | None) -> _Fact:
    if outcome is None:
        return _Fact(phase, holds=False, reason="NotEnded")
    if outcome.phase is not phase:
        return _Fact(phase, holds=False, reason=outcome.phase.value)
    reason, message = outcome.reason, outcome.message
    return _Fact(phase, holds=True, reason=reason, message=message, since=outcome.time)


def _problems(problems: Iterable[Problem]) -> Iterable[_Fact]:
    for problem in problems:
        reason = problem.reason or problem.type.value
        yield _Fact(problem.type.value, holds=True, reason=reason, message=problem.message)


def _condition(fact: _Fact, before: Condition | None, generation: int, now: datetime) -> Condition:
    status = ConditionStatus.TRUE if fact.holds else ConditionStatus.FALSE
    unchanged = before is not None and before.status is status
    begun = times.text(fact.since or now)
    since = before.last_transition_time if before and unchanged else begun
    return Condition(
        type=fact.type,
        status=status,
        reason=fact.reason,
        message=fact.message,
        last_transition_time=since,
        observed_generation=generation,
    )


def status_before(written: dict[str, Any]) -> JobStatus:
    """The status as it stands; one that somebody else spoiled counts as none."""
    try:
        return JobStatus.model_validate(written)
    except ValidationError:
        return JobStatus()


def by_type(written: dict[str, Any]) -> dict[str, Condition]:
    """The conditions in a status; none in one that somebody else spoiled."""
    return {condition.type: condition for condition in status_before(written).conditions}
