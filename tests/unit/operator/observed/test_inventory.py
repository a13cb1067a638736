"""What is kept of jobs that come and go under one name."""

from builders.operator_jobs import KEY, NOW, child, job, pod
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.records import EndPhase, Outcome

COMPLETE = Outcome(phase=EndPhase.COMPLETE, reason="EpochsDone", message="", time=NOW)


def test_of_jobs_of_one_name_only_the_last_ones_end_is_kept() -> None:
    inventory = Inventory()
    inventory.put_child(child(Kind.PersistentVolumeClaim, owner_uid=""))
    for night in range(10):
        uid = f"uid-{night}"
        ended = pod(Role.COORDINATOR, uid=f"pod-of-{uid}", job_uid=uid, outcome=COMPLETE)
        inventory.put_job(job({"uid": uid}))
        inventory.put_pod(ended)
        inventory.drop_pod(KEY, ended.name, ended.uid)
        inventory.put_job(job({"uid": uid, "version": 2}))
        assert inventory.at(KEY).words == {uid: COMPLETE}
        inventory.drop_job(KEY, uid)


def test_what_a_coordinator_said_before_its_job_was_seen_is_kept() -> None:
    inventory = Inventory()
    inventory.put_child(child(Kind.PersistentVolumeClaim, owner_uid=""))
    ended = pod(Role.COORDINATOR, job_uid="uid", outcome=COMPLETE)
    inventory.put_pod(ended)
    inventory.drop_pod(KEY, ended.name, ended.uid)

    inventory.put_job(job({"uid": "uid"}))

    assert inventory.at(KEY).words == {"uid": COMPLETE}
