"""Of several processes of a replica one fails, and the others end because of it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders.operator_jobs import NOW, child, job, pod
from disttrain.job.failure_policy import FailureAction, FailurePolicy, FailureRule
from disttrain.job.names import Role
from disttrain.launch.exit_code import ExitCode
from disttrain_operator.kinds import Kind
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import Death, PodRecord
from disttrain_operator.policies import missing_pods, restarts, starting
from disttrain_operator.reconcile import report

KILLED = Death(exit_code=137, reason="Error", message="", time=NOW, reasons=frozenset({"Error"}))
FOLLOWED = replace(KILLED, exit_code=ExitCode.RESTART)


def member(partition: int, death: Death, times: int = 1, **changed: Any) -> PodRecord:
    found = pod(Role.REPLICA, partition, restarts=times, death=death, is_of_several=True)
    return replace(found, name=f"digits-replica-0-{partition}", **changed)


def count(pods: list[PodRecord], annotation: str = "", **policy: Any) -> restarts.Counted:
    return restarts.count(annotation, pods, FailurePolicy(**policy), {Role.REPLICA: 1})


def total(counted: restarts.Counted) -> int:
    return counted.tallies[Role.REPLICA].total


def test_the_end_of_all_processes_of_a_replica_is_one_failure() -> None:
    pods = [member(0, FOLLOWED), member(1, KILLED), member(2, FOLLOWED)]

    counted = count(pods)

    assert total(counted) == 1
    assert [each.pod.name for each in counted.fresh] == ["digits-replica-0-1"]
    assert total(count(pods, counted.annotation)) == 1


def test_whoever_followed_before_and_fails_now_is_counted_once() -> None:
    counted = count([member(0, FOLLOWED, times=4), member(1, KILLED, times=4)])
    before = total(counted)

    later = [member(0, KILLED, times=5, earlier=(FOLLOWED,)), member(1, FOLLOWED, times=5)]

    assert total(count(later, counted.annotation)) == before + 1


def later(seconds: float, **changed: Any) -> Death:
    return replace(KILLED, time=NOW + timedelta(seconds=seconds), **changed)


def of_one_replica(*deaths: Death, times: int = 1) -> list[PodRecord]:
    return [
        member(partition, death, times, controller="replica 0", uid=f"{partition}")
        for partition, death in enumerate(deaths)
    ]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_processes_that_die_at_once_are_one_failure_whoever_is_seen_first(
    order: tuple[int, ...],
) -> None:
    pods = of_one_replica(KILLED, later(3), later(1, exit_code=1))
    annotation, seen = "", list[PodRecord]()
    for place in order:
        seen.append(pods[place])
        counted = count(seen, annotation)
        annotation = counted.annotation
        assert total(counted) == 1
        assert [each.pod.name for each in counted.fresh] == [pods[place].name], "rules see each"
    assert total(count(pods)) == 1


def test_what_dies_later_or_in_another_replica_is_another_failure() -> None:
    assert total(count(of_one_replica(KILLED, later(10)))) == 2
    others = of_one_replica(KILLED, KILLED)
    others[1] = replace(others[1], controller="replica 1")
    assert total(count(others)) == 2


def test_each_incarnation_of_which_two_processes_die_is_one_failure() -> None:
    counted = count(of_one_replica(KILLED, later(1)))
    first, second = of_one_replica(later(30), later(31), times=2)
    again = [replace(first, earlier=(KILLED,)), replace(second, earlier=(later(1),))]
    assert total(count(again, counted.annotation)) == 2


def test_a_replica_of_one_process_follows_nobody() -> None:
    assert total(count([member(0, FOLLOWED, is_of_several=False)])) == 1


def test_no_rule_is_about_who_followed() -> None:
    rule = FailureRule(exit_codes=(ExitCode.RESTART,), action=FailureAction.FAIL_JOB)
    counted = count([member(0, FOLLOWED), member(1, KILLED)], rules=(rule,))

    assert restarts.ended(counted, FailurePolicy(rules=(rule,)), NOW) is None


def test_the_status_tells_of_who_failed_alone() -> None:
    (told,) = report.latest_failures((), [member(0, FOLLOWED), member(1, KILLED)])

    assert (told.pod, told.exit_code) == ("digits-replica-0-1", 137)


def test_who_failed_is_told_before_who_followed() -> None:
    waits: dict[str, Any] = {"waiting": "CrashLoopBackOff", "phase": "Running"}
    pods = [member(0, FOLLOWED, **waits), member(1, KILLED, **waits)]
    seen = Observed(job(), {}, {each.name: each for each in pods})

    (problem,) = starting.problems(job(), seen, {}, NOW)

    assert problem.message.startswith("pod digits-replica-0-1: CrashLoopBackOff: exit code 137")


def test_a_pod_with_the_label_of_a_replica_is_one_of_several() -> None:
    labels = {"app.kubernetes.io/component": "replica"}

    def is_of_several(**more: str) -> bool:
        found = parsing.pod({"metadata": {"labels": {**labels, **more}}})
        assert found is not None
        return found.is_of_several

    assert not is_of_several()
    assert is_of_several(**{"disttrain.dev/replica-index": "0"})


def test_sets_of_each_role_are_asked_why_they_lack_pods() -> None:
    shards = child(Kind.StatefulSet, name="digits-shard", wanted=2, uid="shards")
    replicas = [
        child(Kind.StatefulSet, name=f"digits-replica-{index}", wanted=2, uid=f"{index}")
        for index in range(5)
    ]
    known = missing_pods.lacks([shards, *replicas], {}, NOW)
    later = NOW + missing_pods.PATIENCE

    asked = missing_pods.unexplained([shards, *replicas], known, later)

    assert set(asked) == {"0", "1", "2", "shards"}
