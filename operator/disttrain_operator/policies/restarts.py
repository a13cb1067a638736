"""Failures of processes: counted per pod, judged by the failure policy, limited per role.

Of several processes of a replica one fails and the others end because of it, which is one failure.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from disttrain.job.failure_policy import (
    DISRUPTION,
    FailureAction,
    FailurePolicy,
    FailureRule,
    MaxRestarts,
)
from disttrain.job.names import Role
from disttrain.job.pod_layout import RESTART_CODE
from disttrain_operator import untrusted
from disttrain_operator.observed.records import Death, OperatorReason, Outcome, PodRecord

_DISRUPTED = FailureRule(reasons=(DISRUPTION,), action=FailureAction.RESTART_POD_IGNORING_BUDGET)
"""Comes before the job's rules, unless one of them is about disruptions."""

_OTHERWISE = FailureAction.RESTART_POD

_TOGETHER = timedelta(seconds=10)
"""Between the deaths of two processes of a replica that are one failure. A kubelet waits as long
before it starts a process for the third time: what dies later has seldom died together."""

_UID_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows, and by which rule."""

    action: FailureAction
    because: str = ""
    """The rule of the manifest and what matched it, in words; empty: no rule says so."""


def judge(rules: Sequence[FailureRule], role: Role, death: Death | None) -> Verdict:
    """What follows the death of a process; None: one of which nothing was seen."""
    if death is None:
        return Verdict(_OTHERWISE)
    speaks_of_disruptions = any(DISRUPTION in rule.reasons for rule in rules)
    if not speaks_of_disruptions and _rule_matches(_DISRUPTED, role, death):
        return Verdict(_DISRUPTED.action)
    for place, rule in enumerate(rules):
        if _rule_matches(rule, role, death):
            how = f"exit code {death.exit_code}, {death.reason}"
            return Verdict(rule.action, f"spec.failurePolicy.rules[{place}] ({how})")
    return Verdict(_OTHERWISE)


def is_consequence(pod: PodRecord, death: Death | None) -> bool:
    """Whether a process ended because another one of its replica did."""
    return pod.is_of_several and death is not None and death.exit_code == RESTART_CODE


def _rule_matches(rule: FailureRule, role: Role, death: Death) -> bool:
    return (
        (not rule.roles or role in rule.roles)
        and (not rule.exit_codes or death.exit_code in rule.exit_codes)
        and (not rule.reasons or not death.reasons.isdisjoint(rule.reasons))
    )


_New = tuple[Death | None, int]
"""How a process died, and how many of its failures that stands for."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A pod that failed since it was counted last."""

    pod: PodRecord
    verdict: Verdict


@dataclass(slots=True)
class Tally:
    """The failures of a role."""

    total: int
    outside: int
    """Failures that the budget is not charged with."""
    members: int
    """The most members that the role had, since it failed first."""
    known: Mapping[str, int]
    """Failures that were counted, by the beginning of the pod's uid."""
    seen: dict[str, int]
    """The same for the next time: pods that are gone are left out."""

    @property
    def charged(self) -> int:
        return self.total - self.outside


@dataclass(frozen=True, slots=True)
class _Together:
    """Failures that were counted, of replicas of several processes."""

    deaths: dict[str, list[tuple[str, datetime]]]
    """Names of pods, and when they died, by the workload that keeps a replica."""

    @classmethod
    def before(cls, pods: Iterable[tuple[PodRecord, Sequence[_New]]]) -> "_Together":
        """What was counted before the new failures of each, as far as pods tell of it."""
        together = cls({})
        for pod, new in pods:
            known = pod.deaths[:-1] if pod.restarting and pod.phase != "Failed" else pod.deaths
            fresh = [death for death, _ in new]
            for death in known if pod.is_of_several else ():
                if death not in fresh and not is_consequence(pod, death):
                    together._of(pod).append((pod.name, death.time))
        return together

    def repeats(self, pod: PodRecord, death: Death | None) -> bool:
        """Whether another process of the same replica died at the same time; takes note of it."""
        if death is None or not pod.is_of_several or not pod.controller:
            return False
        counted = self._of(pod)
        found = any(
            name != pod.name and abs(death.time - time) < _TOGETHER for name, time in counted
        )
        counted.append((pod.name, death.time))
        return found

    def _of(self, pod: PodRecord) -> list[tuple[str, datetime]]:
        return self.deaths.setdefault(pod.controller, [])


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted."""

    tallies: Mapping[Role, Tally]
    annotation: str
    """The same for the next time; empty while nothing was counted."""
    fresh: tuple[Failed, ...] = ()
    """Pods whose failures are not in the annotation of before."""

    @property
    def why_restarts_all(self) -> str:
        """The rule and the pod that make all processes start again; empty for none."""
        action = FailureAction.RESTART_JOB_FROM_CHECKPOINT
        for failed in self.fresh:
            if failed.verdict.action is action:
                return f"pod {failed.pod.name} failed, and {failed.verdict.because} says so"
        return ""


def count(
    annotation: str, pods: Iterable[PodRecord], policy: FailurePolicy, members: Mapping[Role, int]
) -> Counted:
    """Add how often pods failed since the annotation was written, each judged by how it died.

    A failure of which nothing was seen is judged as the first after it that was. `members`: how
    many each role shall have now; of those that are not named there is one.
    """
    tallies = _parsed(annotation)
    for role, tally in tallies.items():
        # A job that is made smaller must not fail of what its size allowed.
        tally.members = max(tally.members, members.get(role, 1))
    found = [(pod, _since(tallies[pod.role], pod, policy.rules)) for pod in pods]
    together = _Together.before(found)
    fresh = []
    for pod, new in found:
        tally = tallies[pod.role]
        for death, number in new:
            verdict = judge(policy.rules, pod.role, death)
            fresh.append(Failed(pod, verdict))
            # Rules are about each process, budgets about replicas.
            charged = number - together.repeats(pod, death)
            tally.total += charged
            if verdict.action is FailureAction.RESTART_POD_IGNORING_BUDGET:
                tally.outside += charged
    return Counted(tallies, _text(tallies), tuple(fresh))


def _since(tally: Tally, pod: PodRecord, rules: Sequence[FailureRule]) -> list[_New]:
    """A pod's failures since it was counted last, which the tally takes note of."""
    failures = _failures(pod, judge(rules, pod.role, pod.death))
    if failures == 0:
        return []
    uid = pod.uid[:_UID_CHARACTERS]
    known = tally.known.get(uid, 0)
    tally.seen[uid] = max(failures, known)
    new = _new_deaths(pod, failures - known)
    return [(death, number) for death, number in new if not is_consequence(pod, death)]


def ended(counted: Counted, policy: FailurePolicy, now: datetime) -> Outcome | None:
    """The end of a job that a rule fails, or of which a role failed more often than allowed."""
    for failed in counted.fresh:
        if failed.verdict.action is FailureAction.FAIL_JOB:
            message = (
                f"{failed.verdict.because} fails the job: pod {failed.pod.name} failed; "
                "status.failures says more"
            )
            return Outcome.failed(OperatorReason.FAILED_BY_RULE, message, now)
    return _exceeded(counted, policy.max_restarts, now)


def _exceeded(counted: Counted, most: MaxRestarts, now: datetime) -> Outcome | None:
    for role, tally in counted.tallies.items():
        budget = most.budget(role, tally.members)
        if tally.charged > budget:
            message = (
                f"{role}s were restarted {tally.charged} times, more than "
                f"spec.failurePolicy.maxRestarts.{role} ({budget}); status.failures says why"
            )
            return Outcome.failed(OperatorReason.TOO_MANY_RESTARTS, message, now)
    return None


def _failures(pod: PodRecord, verdict: Verdict) -> int:
    """How often a pod failed: restarts of its container, and its own end if nobody asked for it.

    A pod that the cluster takes away was asked to end; it is a failure where a rule says so.
    """
    asked = pod.gone_at is not None
    minds = pod.disrupted and verdict.action is not FailureAction.RESTART_POD_IGNORING_BUDGET
    return pod.restarts + int(pod.phase == "Failed" and (not asked or minds))


def _new_deaths(pod: PodRecord, number: int) -> list[_New]:
    """How the pod died in its last failures, and how many of them each death stands for."""
    if number <= 0:
        return []
    known = pod.deaths
    if pod.restarting and pod.phase != "Failed":
        # It counts as it is started again.
        known = known[:-1]
    told = known[-number:]
    if not told:
        return [(pod.death, number)]
    return [(told[0], number - len(told) + 1), *((death, 1) for death in told[1:])]


def _text(tallies: Mapping[Role, Tally]) -> str:
    content = {
        role.value: {
            "total": tally.total,
            "pods": tally.seen,
            **({"outside": tally.outside} if tally.outside else {}),
            **({"members": tally.members} if tally.members > 1 else {}),
        }
        for role, tally in tallies.items()
        if tally.total
    }
    return json.dumps(content, sort_keys=True) if content else ""


def _parsed(annotation: str) -> dict[Role, Tally]:
    entries = untrusted.written(annotation)
    return {role: _tally(untrusted.mapping(entries, role.value)) for role in Role}


def _tally(entry: dict[str, Any]) -> Tally:
    counts = untrusted.mapping(entry, "pods")
    return Tally(
        total=_whole(entry.get("total")),
        outside=_whole(entry.get("outside")),
        members=_whole(entry.get("members")),
        known={uid: count for uid, count in counts.items() if isinstance(count, int)},
        seen={},
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
