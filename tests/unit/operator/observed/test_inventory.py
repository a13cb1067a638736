"""What is kept of objects that are told of out of order, and of jobs that share a name."""

from typing import Any

import pytest

from builders.operator_jobs import KEY, NOW, child, job, pod
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.inventory import Change, Inventory
from disttrain_operator.observed.records import EndPhase, Outcome

COMPLETE = Outcome(phase=EndPhase.COMPLETE, reason="EpochsDone", message="", time=NOW)


def test_of_jobs_of_one_name_only_the_last_ones_end_is_kept() -> None:
    inventory = Inventory()
    inventory.put(child(Kind.PersistentVolumeClaim, owner_uid=""))
    for night in range(10):
        uid = f"uid-{night}"
        ended = pod(Role.COORDINATOR, uid=f"pod-of-{uid}", owner_uid=uid, outcome=COMPLETE)
        inventory.put(job({"uid": uid}))
        inventory.put(ended)
        inventory.drop(ended)
        inventory.put(job({"uid": uid, "version": 2}))
        assert inventory.at(KEY).decided == {uid: COMPLETE}
        inventory.drop(job({"uid": uid}))


def test_what_a_coordinator_said_before_its_job_was_seen_is_kept() -> None:
    inventory = Inventory()
    inventory.put(child(Kind.PersistentVolumeClaim, owner_uid=""))
    ended = pod(Role.COORDINATOR, owner_uid="uid", outcome=COMPLETE)
    inventory.put(ended)
    inventory.drop(ended)

    inventory.put(job({"uid": "uid"}))

    assert inventory.at(KEY).decided == {"uid": COMPLETE}


def test_a_late_sight_of_the_job_before_forgets_no_word_of_the_next_one() -> None:
    inventory = Inventory()
    inventory.put(job({"uid": "first"}))
    ended = pod(Role.COORDINATOR, owner_uid="second", outcome=COMPLETE)
    inventory.put(ended)
    inventory.drop(ended)

    inventory.put(job({"uid": "first", "version": 2}))
    inventory.put(job({"uid": "second", "version": 3}))

    assert inventory.at(KEY).decided == {"second": COMPLETE}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (job({"version": 9}), job({"version": 10, "generation": 2})),
        (child(Kind.Job, version=9), child(Kind.Job, version=10, ready=1)),
        (pod(Role.SHARD, version=9), pod(Role.SHARD, version=10, phase="Failed")),
    ],
    ids=["job", "child", "pod"],
)
def test_an_older_sight_never_replaces_a_newer_one(older: Any, newer: Any) -> None:
    inventory = Inventory()
    inventory.put(older)
    assert inventory.put(newer) is not Change.NOTHING

    assert inventory.put(older) is Change.NOTHING

    assert inventory.at(KEY).of_kind(newer.kind) == [newer]
