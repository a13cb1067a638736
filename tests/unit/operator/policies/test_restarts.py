from dataclasses import replace
from typing import Any

import pytest

from builders.operator_jobs import NOW, pod
from disttrain.job.failure_policy import (
    DISRUPTION,
    FailureAction,
    FailurePolicy,
    FailureRule,
    MaxRestarts,
)
from disttrain.job.names import Role
from disttrain_operator.observed.records import Death, PodRecord
from disttrain_operator.policies import restarts

DEATH = Death(exit_code=1, reason="Error", message="", time=NOW, reasons=frozenset({"Error"}))
DISRUPTED = replace(DEATH, reasons=frozenset({"Error", DISRUPTION}))


def policy(action: FailureAction, **matches: Any) -> FailurePolicy:
    return FailurePolicy(
        rules=(FailureRule(action=action, **matches),), max_restarts=MaxRestarts(replica=1)
    )


def failed(times: int, death: Death = DEATH, **changed: Any) -> PodRecord:
    return pod(Role.REPLICA, restarts=times, death=death, **changed)


def count(
    annotation: str, pods: list[PodRecord], given: FailurePolicy, replicas: int = 1
) -> restarts.Counted:
    return restarts.count(annotation, pods, given, {Role.REPLICA: replicas, Role.SHARD: 2})


def test_a_restart_is_counted_once_however_often_it_is_seen() -> None:
    first = count("", [failed(2)], FailurePolicy())
    again = count(first.annotation, [failed(2)], FailurePolicy())

    assert first.tallies[Role.REPLICA].total == again.tallies[Role.REPLICA].total == 2
    assert len(first.fresh) == 1
    assert again.fresh == ()
    assert again.annotation == first.annotation


def test_each_failure_between_two_looks_is_judged_by_how_it_died() -> None:
    fails = policy(FailureAction.FAIL_JOB, exit_codes=(7,))
    seventh = replace(DEATH, exit_code=7)

    counted = count("", [failed(3, earlier=(DISRUPTED, seventh))], fails)

    assert (counted.tallies[Role.REPLICA].total, counted.tallies[Role.REPLICA].charged) == (3, 2)
    outcome = restarts.ended(counted, fails, NOW)
    assert outcome is not None
    assert "exit code 7" in outcome.message
    again = count(counted.annotation, [failed(3, earlier=(DISRUPTED, seventh))], fails)
    assert again.fresh == ()


def test_failures_that_nobody_saw_are_judged_as_the_next_one() -> None:
    counted = count("", [failed(5, earlier=(DISRUPTED,))], FailurePolicy())

    assert (counted.tallies[Role.REPLICA].total, counted.tallies[Role.REPLICA].charged) == (5, 1)


def test_a_death_counts_as_its_container_starts_again() -> None:
    fails = policy(FailureAction.FAIL_JOB, exit_codes=(7,))
    seventh = replace(DEATH, exit_code=7)
    dying = failed(1, seventh, earlier=(DEATH,), restarting=True)

    first = count("", [dying], fails)
    later = count(first.annotation, [replace(dying, restarts=2, restarting=False)], fails)

    assert restarts.ended(first, fails, NOW) is None
    assert restarts.ended(later, fails, NOW) is not None


def test_restarts_of_pods_that_are_gone_stay_counted() -> None:
    first = count("", [failed(2)], FailurePolicy())

    later = count(first.annotation, [], FailurePolicy())

    assert later.tallies[Role.REPLICA].total == 2
    assert count(later.annotation, [], FailurePolicy()).tallies[Role.REPLICA].total == 2


def test_disruptions_are_counted_but_no_budget_is_charged() -> None:
    counted = count("", [failed(5, DISRUPTED)], policy(FailureAction.FAIL_JOB))

    assert counted.tallies[Role.REPLICA].total == 5
    assert counted.tallies[Role.REPLICA].charged == 0
    assert restarts.ended(counted, policy(FailureAction.FAIL_JOB), NOW) is None
    again = count(counted.annotation, [failed(6)], FailurePolicy())
    assert (again.tallies[Role.REPLICA].total, again.tallies[Role.REPLICA].charged) == (6, 1)


def test_more_failures_than_the_budget_end_the_job() -> None:
    most = policy(FailureAction.RESTART_POD)
    assert restarts.ended(count("", [failed(1)], most), most, NOW) is None

    outcome = restarts.ended(count("", [failed(2)], most), most, NOW)

    assert outcome is not None
    assert outcome.reason == "TooManyRestarts"
    assert "maxRestarts.replica (1)" in outcome.message


@pytest.mark.parametrize(
    ("replicas", "failures", "ends"),
    [(1, 10, False), (1, 11, True), (1000, 11, False), (1000, 3000, False), (1000, 3001, True)],
)
def test_a_budget_that_nobody_gave_grows_with_the_replicas(
    replicas: int, failures: int, *, ends: bool
) -> None:
    counted = count("", [failed(failures)], FailurePolicy(), replicas)

    assert (restarts.ended(counted, FailurePolicy(), NOW) is not None) is ends


def test_a_job_that_is_made_smaller_keeps_the_budget_that_it_had() -> None:
    many = count("", [failed(500)], FailurePolicy(), replicas=1000)

    few = count(many.annotation, [], FailurePolicy(), replicas=2)

    assert restarts.ended(few, FailurePolicy(), NOW) is None
    assert few.tallies[Role.REPLICA].charged == 500


def test_a_rule_fails_the_job_and_is_named() -> None:
    fails = policy(FailureAction.FAIL_JOB, exit_codes=(1,))

    outcome = restarts.ended(count("", [failed(1)], fails), fails, NOW)

    assert outcome is not None
    assert outcome.reason == "FailedByRule"
    assert outcome.message.startswith("spec.failurePolicy.rules[0]")
    assert "digits-replica-0" in outcome.message


@pytest.mark.parametrize(
    ("changed", "number"),
    [
        ({"phase": "Failed"}, 1),
        ({"phase": "Failed", "gone_at": NOW}, 0),
        ({"phase": "Failed", "gone_at": NOW, "disrupted": True, "death": DISRUPTED}, 0),
        ({"phase": "Failed", "disrupted": True, "death": DISRUPTED}, 1),
        ({"phase": "Succeeded"}, 0),
    ],
)
def test_a_pod_that_failed_counts_unless_it_was_told_to_end(
    changed: dict[str, Any], number: int
) -> None:
    failed_pod = pod(Role.REPLICA, **{"death": DEATH, **changed})

    assert count("", [failed_pod], FailurePolicy()).tallies[Role.REPLICA].total == number


def test_a_pod_that_was_taken_away_is_a_failure_where_a_rule_says_so() -> None:
    taken = pod(Role.REPLICA, phase="Failed", gone_at=NOW, disrupted=True, death=DISRUPTED)
    fails = policy(FailureAction.FAIL_JOB, reasons=(DISRUPTION,))

    outcome = restarts.ended(count("", [taken], fails), fails, NOW)

    assert outcome is not None
    assert outcome.reason == "FailedByRule"


@pytest.mark.parametrize(
    "spoiled",
    ["{", "[1]", '{"replica": 3}', '{"replica": {"pods": 1}}', '{"replica": {"total": "50"}}'],
)
def test_an_annotation_that_somebody_spoiled_counts_as_none(spoiled: str) -> None:
    assert count(spoiled, [failed(1)], FailurePolicy()).tallies[Role.REPLICA].total == 1
