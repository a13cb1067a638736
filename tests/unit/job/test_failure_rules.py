"""Rules of the failure policy: what may stand in them."""

from typing import Any

import pytest

from builders.jobs import SMALL
from disttrain.job import support
from disttrain.job.failure_policy import FailureAction, FailurePolicy
from disttrain.job.finding import InvalidManifest
from disttrain.job.names import Role
from disttrain.job.parsing import parse_job
from disttrain_generators import crd


def policy(rules: str) -> FailurePolicy:
    text = SMALL.rstrip() + "\n  failurePolicy: {rules: " + rules + "}\n"
    return parse_job(text).spec.failure_policy


def test_a_rule_says_what_it_is_about_and_what_follows() -> None:
    (rule,) = policy(
        "[{roles: [replica], exitCodes: [3, 137], reasons: [OOMKilled], action: FailJob}]"
    ).rules

    assert rule.roles == (Role.REPLICA,)
    assert rule.exit_codes == (3, 137)
    assert rule.reasons == ("OOMKilled",)
    assert rule.action is FailureAction.FAIL_JOB


@pytest.mark.parametrize(
    ("rules", "place"),
    [
        ("[{}]", "rules[0]"),
        ("[{action: Restart}]", "rules[0].action"),
        ("[{action: FailJob, exitCodes: [0]}]", "rules[0].exitCodes[0]"),
        ("[{action: FailJob, exitCodes: [256]}]", "rules[0].exitCodes[0]"),
        ("[{action: FailJob, reasons: ['out of memory']}]", "rules[0].reasons[0]"),
        ("[{action: FailJob, roles: [worker]}]", "rules[0].roles[0]"),
        ("[{action: FailJob, code: 3}]", "rules[0].code"),
        ("[" + ", ".join(["{action: FailJob}"] * 21) + "]", "rules"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(rules: str, place: str) -> None:
    with pytest.raises(InvalidManifest) as raised:
        policy(rules)
    assert f"spec.failurePolicy.{place}" in str(raised.value)


def test_rules_mean_nothing_on_one_machine() -> None:
    text = SMALL.rstrip() + "\n  failurePolicy: {rules: [{action: FailJob}]}\n"

    assert support.without_meaning(parse_job(text)) == [("spec", "failurePolicy", "rules")]
    assert support.without_meaning(parse_job(SMALL)) == []


def test_the_api_server_knows_their_bounds() -> None:
    schema: dict[str, Any] = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in ("spec", "failurePolicy", "rules"):
        schema = schema["properties"][name]

    assert schema["maxItems"] == 20
    rule = schema["items"]["properties"]
    assert rule["action"]["enum"] == [action.value for action in FailureAction]
    assert rule["exitCodes"]["items"] == {
        "type": "integer",
        "format": "int64",
        "minimum": 1,
        "maximum": 255,
    }
