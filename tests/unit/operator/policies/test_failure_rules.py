from typing import Any

import pytest

from builders.operator_jobs import NOW
from disttrain.job.failure_policy import DISRUPTION, FailureAction, FailureRule
from disttrain.job.names import Role
from disttrain_operator.observed.records import Death
from disttrain_operator.policies.restarts import judge

FAIL = FailureAction.FAIL_JOB
IGNORE = FailureAction.RESTART_POD_IGNORING_BUDGET
RESTART = FailureAction.RESTART_POD


def death(code: int = 1, *reasons: str) -> Death:
    reason = reasons[0] if reasons else ""
    return Death(exit_code=code, reason=reason, message="", time=NOW, reasons=frozenset(reasons))


def rule(action: FailureAction, **matches: Any) -> FailureRule:
    return FailureRule(action=action, **matches)


@pytest.mark.parametrize(
    ("rules", "seen", "follows"),
    [
        ([], death(1, "Error"), (RESTART, None)),
        ([], death(143, "Error", DISRUPTION), (IGNORE, None)),
        ([rule(FAIL)], death(143, "Error", DISRUPTION), (IGNORE, None)),
        (
            [rule(RESTART, reasons=(DISRUPTION,))],
            death(143, "Error", DISRUPTION),
            (RESTART, 0),
        ),
        ([rule(FAIL, exit_codes=(3, 4))], death(4), (FAIL, 0)),
        ([rule(FAIL, exit_codes=(3, 4))], death(5), (RESTART, None)),
        ([rule(FAIL, reasons=("OOMKilled",))], death(137, "OOMKilled"), (FAIL, 0)),
        ([rule(IGNORE, reasons=("Evicted",))], death(-1, "Evicted"), (IGNORE, 0)),
        ([rule(FAIL, roles=(Role.SHARD,))], death(1), (RESTART, None)),
        ([rule(FAIL, roles=(Role.REPLICA,))], death(1), (FAIL, 0)),
        (
            [rule(FAIL, exit_codes=(137,), reasons=("OOMKilled",))],
            death(137, "Error"),
            (RESTART, None),
        ),
        ([rule(IGNORE, exit_codes=(9,)), rule(FAIL)], death(9), (IGNORE, 0)),
        ([rule(IGNORE, exit_codes=(9,)), rule(FAIL)], death(8), (FAIL, 1)),
        ([rule(FAIL)], None, (RESTART, None)),
    ],
)
def test_the_first_rule_that_matches_counts(
    rules: list[FailureRule], seen: Death | None, follows: tuple[FailureAction, int | None]
) -> None:
    action, place = follows

    verdict = judge(rules, Role.REPLICA, seen)

    assert verdict.action is action
    named = "" if place is None else f"spec.failurePolicy.rules[{place}] "
    assert verdict.because.startswith(named)
    assert bool(verdict.because) == bool(named)


def test_what_matched_is_told_with_the_rule() -> None:
    verdict = judge([rule(FAIL)], Role.REPLICA, death(137, "OOMKilled"))

    assert verdict.because == "spec.failurePolicy.rules[0] (exit code 137, OOMKilled)"
