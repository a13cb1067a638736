from typing import Any

import pytest

from builders.operator_jobs import NOW, child, job, pod
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.inventory import News, compare
from disttrain_operator.observed.records import Death

DEATH = Death(exit_code=1, reason="Error", message="", time=NOW)
PENDING: dict[str, Any] = {"phase": "Pending", "ready": False}


@pytest.mark.parametrize(
    ("old", "new", "news"),
    [
        (None, PENDING, News.NUMBERS),
        (None, {"phase": "Failed"}, News.DECISIVE),
        (None, {"death": DEATH}, News.DECISIVE),
        (PENDING, {**PENDING, "version": 2}, News.NOTHING),
        (PENDING, {**PENDING, "waiting": "ImagePullBackOff"}, News.NUMBERS),
        (PENDING, {}, News.NUMBERS),
        ({"uid": "before"}, PENDING, News.NUMBERS),
        ({}, {"phase": "Succeeded", "ready": False}, News.DECISIVE),
        ({}, {"restarts": 1, "death": DEATH}, News.DECISIVE),
        ({}, {"gone_at": NOW}, News.DECISIVE),
        ({"phase": "Failed"}, {"phase": "Failed", "ready": False}, News.DECISIVE),
    ],
)
def test_a_pod_that_only_comes_is_a_number(
    old: dict[str, Any] | None, new: dict[str, Any], news: News
) -> None:
    before = None if old is None else pod(Role.SHARD, **old)

    assert compare(before, pod(Role.SHARD, **new)) is news


@pytest.mark.parametrize(
    ("kind", "changed", "news"),
    [
        (Kind.StatefulSet, {"version": 2}, News.NOTHING),
        (Kind.StatefulSet, {"ready": 1, "remaining": 2}, News.NUMBERS),
        (Kind.ReplicaSet, {"ready": 1, "wanted": 2}, News.DECISIVE),
        (Kind.ReplicaSet, {"deleting": True}, News.DECISIVE),
        (Kind.Job, {"remaining": 1}, News.DECISIVE),
    ],
)
def test_a_childs_readiness_is_a_number_and_all_else_decides(
    kind: Kind, changed: dict[str, Any], news: News
) -> None:
    assert compare(child(kind), child(kind, **changed)) is news
    assert compare(None, child(kind)) is News.DECISIVE


def test_whatever_changes_of_a_job_decides() -> None:
    assert compare(job(), job({"version": 2})) is News.NOTHING
    assert compare(job(), job({"generation": 2})) is News.DECISIVE
