from typing import Any

import pytest

from builders.operator_jobs import NOW
from disttrain.job.failure_policy import DISRUPTION, FailureAction, FailureRule
from disttrain.job.names import Role
from disttrain_operator.observed.records import Death
from disttrain_operator.policies.failure_rules import Verdict, judge

FAIL = FailureAction.FAIL_JOB
IGNORE = FailureAction.RESTART_POD_IGNORING_BUDGET
RESTART = FailureAction.RESTART_POD


def death(code: int = 1, *reasons: str) -> Death:
    reason = reasons[0] if reasons else ""
    return Death(exit_code=code, reason=reason, message="", time=NOW, reasons=frozenset(reasons))


def rule(action: FailureAction, **matches: Any) -> FailureRule:
    return FailureRule(action=action, **matches)


@pytest.mark.parametrize(
    ("rules", "seen", "verdict"),
    [
        ([], death(1, "Error"), Verdict(RESTART)),
        ([], death(143, "Error", DISRUPTION), Verdict(IGNORE)),
        ([rule(FAIL)], death(143, "Error", DISRUPTION), Verdict(IGNORE)),
        (
            [rule(RESTART, reasons=(DISRUPTION,))],
            death(143, "Error", DISRUPTION),
            Verdict(RESTART, 0),
        ),
        ([rule(FAIL, exit_codes=(3, 4))], death(4), Verdict(FAIL, 0)),
        ([rule(FAIL, exit_codes=(3, 4))], death(5), Verdict(RESTART)),
        ([rule(FAIL, reasons=("OOMKilled",))], death(137, "OOMKilled"), Verdict(FAIL, 0)),
        ([rule(IGNORE, reasons=("Evicted",))], death(-1, "Evicted"), Verdict(IGNORE, 0)),
        ([rule(FAIL, roles=(Role.SHARD,))], death(1), Verdict(RESTART)),
        ([rule(FAIL, roles=(Role.REPLICA,))], death(1), Verdict(FAIL, 0)),
        (
            [rule(FAIL, exit_codes=(137,), reasons=("OOMKilled",))],
            death(137, "Error"),
            Verdict(RESTART),
        ),
        ([rule(IGNORE, exit_codes=(9,)), rule(FAIL)], death(9), Verdict(IGNORE, 0)),
        ([rule(IGNORE, exit_codes=(9,)), rule(FAIL)], death(8), Verdict(FAIL, 1)),
        ([rule(FAIL)], None, Verdict(RESTART)),
    ],
)
def test_the_first_rule_that_matches_counts(
    rules: list[FailureRule], seen: Death | None, verdict: Verdict
) -> None:
    assert judge(rules, Role.REPLICA, seen) == verdict
