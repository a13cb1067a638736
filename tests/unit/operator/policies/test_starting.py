"""Why pods do not start, each in words that a person can act upon."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders.operator_jobs import NOW, child, job, pod
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import ChildRecord, Death, PodRecord
from disttrain_operator.policies import starting
from disttrain_operator.policies.missing_pods import Lack
from disttrain_operator.policies.problem import Problem, ProblemType

WAITING = replace(pod(Role.REPLICA), phase="Pending", ready=False)
CRASHED = Death(exit_code=1, reason="Error", message="No module named 'digits'", time=NOW)
SHARDS = child(Kind.StatefulSet, wanted=2, remaining=0)


def problems(*seen: PodRecord | ChildRecord, lacks: dict[str, Lack] | None = None) -> list[Any]:
    pods = {each.name: each for each in seen if isinstance(each, PodRecord)}
    children = {(each.kind, each.name): each for each in seen if isinstance(each, ChildRecord)}
    seen_together = Observed(job(), children, pods)
    found: list[Problem] = starting.problems(job(), seen_together, lacks or {}, NOW)
    return [(each.type, each.reason, each.message) for each in found]


@pytest.mark.parametrize(
    ("changed", "reason", "words"),
    [
        ({"waiting": "ImagePullBackOff", "detail": "no such image"}, "ImagePullBackOff", "no such"),
        ({"unschedulable": True, "detail": "0/3 nodes"}, "Unschedulable", "0/3 nodes"),
        (
            {"waiting": "CrashLoopBackOff", "detail": "back-off 10s", "death": CRASHED},
            "CrashLoopBackOff",
            "exit code 1, Error: No module named 'digits'",
        ),
    ],
)
def test_a_pod_that_does_not_start_is_told(
    changed: dict[str, Any], reason: str, words: str
) -> None:
    ((kind, told, message),) = problems(replace(WAITING, **changed))

    assert (kind, told) == (ProblemType.CANNOT_START, reason)
    assert f"pod {WAITING.name}: {reason}: " in message
    assert words in message


@pytest.mark.parametrize(
    "changed",
    [
        {"waiting": "ContainerCreating"},
        {"waiting": "PodInitializing"},
        {"waiting": "ImagePullBackOff", "gone_at": NOW},
        {"waiting": "ImagePullBackOff", "phase": "Failed"},
        {"waiting": "ImagePullBackOff", "owner_uid": "another"},
        {"unschedulable": True, "created": NOW - timedelta(seconds=4)},
    ],
)
def test_what_passes_by_itself_is_not_told(changed: dict[str, Any]) -> None:
    assert problems(replace(WAITING, **changed)) == []


def test_a_new_pod_without_a_node_is_looked_at_again_and_told_then() -> None:
    stuck = replace(WAITING, unschedulable=True, created=NOW)
    seen = Observed(job(), {}, {stuck.name: stuck})
    later = starting.next_instant(job(), seen, NOW)

    assert later == NOW + timedelta(seconds=5)
    assert starting.problems(job(), seen, {}, later - timedelta(milliseconds=1)) == []
    (problem,) = starting.problems(job(), seen, {}, later)
    assert problem.reason == "Unschedulable"
    assert starting.next_instant(job(), seen, later) is None


def test_of_many_pods_a_few_are_named() -> None:
    stuck = [replace(WAITING, name=f"pod-{index}", waiting="ErrImagePull") for index in range(50)]

    ((_, _, message),) = problems(*stuck)

    assert message.count("pod pod-") == 3
    assert message.endswith("(and 47 more)")


def test_what_an_event_says_of_pods_that_cannot_be_created_is_told() -> None:
    said = 'pods "digits-shard-0" is forbidden: exceeded quota'
    quota = {SHARDS.uid: Lack(NOW, NOW, said)}

    ((kind, reason, message),) = problems(SHARDS, lacks=quota)

    assert (kind, reason) == (ProblemType.CANNOT_START, "FailedCreate")
    assert message.endswith("exceeded quota")
    assert problems(replace(SHARDS, remaining=2), lacks=quota) == []


def test_a_claim_without_a_volume_is_told_once_a_pod_waits_for_it() -> None:
    claim = child(Kind.PersistentVolumeClaim, trouble="its phase is Pending")

    assert problems(claim, WAITING) == []

    found = problems(claim, replace(WAITING, unschedulable=True))
    (message,) = [each for kind, _, each in found if kind is ProblemType.VOLUME_UNBOUND]
    assert f"PersistentVolumeClaim {claim.name} has no volume" in message
