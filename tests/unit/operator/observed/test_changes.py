from typing import Any

import pytest

from builders.operator_jobs import NOW, child, job, pod
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.inventory import Change, compare
from disttrain_operator.observed.records import Death

DEATH = Death(exit_code=1, reason="Error", message="", time=NOW)
PENDING: dict[str, Any] = {"phase": "Pending", "ready": False}


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (None, PENDING, Change.NUMBERS),
        (None, {"phase": "Failed"}, Change.DECISIVE),
        (None, {"death": DEATH}, Change.DECISIVE),
        (PENDING, {**PENDING, "version": 2}, Change.NOTHING),
        (PENDING, {**PENDING, "waiting": "ImagePullBackOff"}, Change.NUMBERS),
        (PENDING, {}, Change.NUMBERS),
        ({"uid": "before"}, PENDING, Change.NUMBERS),
        ({}, {"phase": "Succeeded", "ready": False}, Change.DECISIVE),
        ({}, {"restarts": 1, "death": DEATH}, Change.DECISIVE),
        ({}, {"gone_at": NOW}, Change.DECISIVE),
        ({"phase": "Failed"}, {"phase": "Failed", "ready": False}, Change.DECISIVE),
    ],
)
def test_a_pod_that_only_comes_is_a_number(
    old: dict[str, Any] | None, new: dict[str, Any], change: Change
) -> None:
    before = None if old is None else pod(Role.SHARD, **old)

    assert compare(before, pod(Role.SHARD, **new)) is change


@pytest.mark.parametrize(
    ("kind", "changed", "change"),
    [
        (Kind.StatefulSet, {"version": 2}, Change.NOTHING),
        (Kind.StatefulSet, {"ready": 1, "remaining": 2}, Change.NUMBERS),
        (Kind.ReplicaSet, {"ready": 1, "wanted": 2}, Change.DECISIVE),
        (Kind.ReplicaSet, {"deleting": True}, Change.DECISIVE),
        (Kind.Job, {"remaining": 1}, Change.DECISIVE),
    ],
)
def test_a_childs_readiness_is_a_number_and_all_else_decides(
    kind: Kind, changed: dict[str, Any], change: Change
) -> None:
    assert compare(child(kind), child(kind, **changed)) is change
    assert compare(None, child(kind)) is Change.DECISIVE


def test_whatever_changes_of_a_job_decides() -> None:
    assert compare(job(), job({"version": 2})) is Change.NOTHING
    assert compare(job(), job({"generation": 2})) is Change.DECISIVE
