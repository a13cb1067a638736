"""What follows a failure: the first rule of the job's failure policy that matches it."""

from collections.abc import Sequence
from dataclasses import dataclass

from disttrain.job.failure_policy import DISRUPTION, FailureAction, FailureRule
from disttrain.job.names import Role
from disttrain_operator.observed.records import Death

_DISRUPTED = FailureRule(reasons=(DISRUPTION,), action=FailureAction.RESTART_POD_IGNORING_BUDGET)
"""Comes before the job's rules, unless one of them is about disruptions."""

_OTHERWISE = FailureAction.RESTART_POD


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
    if not speaks_of_disruptions and _matches(_DISRUPTED, role, death):
        return Verdict(_DISRUPTED.action)
    for place, rule in enumerate(rules):
        if _matches(rule, role, death):
            return Verdict(rule.action, _words(place, death))
    return Verdict(_OTHERWISE)


def _words(place: int, death: Death) -> str:
    how = f"exit code {death.exit_code}, {death.reason}"
    return f"spec.failurePolicy.rules[{place}] ({how})"


def _matches(rule: FailureRule, role: Role, death: Death) -> bool:
    return (
        (not rule.roles or role in rule.roles)
        and (not rule.exit_codes or death.exit_code in rule.exit_codes)
        and (not rule.reasons or not death.reasons.isdisjoint(rule.reasons))
    )
