"""A job from its beginning to its end, and what a person does to it meanwhile."""

import time
from functools import partial

import pytest

from builders.pretended_training import PretendedTraining
from cluster import Kubectl, commands

HPA_MINIMUM = 3
KEEP_SECONDS = 6
SOON_SECONDS = 100
"""After a time is over; how soon, operator_scale.py measures."""


def test_it_completes_and_leaves_only_its_volume(job: PretendedTraining) -> None:
    job.start()
    assert [child for child in job.children if not job.has(child)] == []
    job.wait_until(lambda: len(job.pods("replica")) == 2, "both replicas are made")
    assert len(job.pods("shard")) == 2
    # It can be deleted while there is no operator.
    assert "finalizers" not in job.get()["metadata"]

    job.finish(reason="Epochs", message="1 epoch")
    assert job.wait_for_condition("Complete")["reason"] == "Epochs"
    job.wait_until(lambda: not job.pods("replica") and not job.pods("shard"), "the others are gone")
    (coordinator,) = job.pods("coordinator")
    assert coordinator["status"]["phase"] == "Succeeded"
    assert job.get()["status"]["phase"] == "Complete"

    job.delete()
    job.wait_until(lambda: job.leftovers() == [], "nothing is left")
    assert job.has(f"persistentvolumeclaim/{job.name}-checkpoints")


def test_a_claim_that_shall_go_with_its_job_does(job: PretendedTraining) -> None:
    job.start(checkpoint={"volume": {"size": "8Mi", "retentionPolicy": {"whenDeleted": "Delete"}}})
    claim = f"persistentvolumeclaim/{job.name}-checkpoints"
    assert job.has(claim)

    job.delete()

    job.wait_until(lambda: not job.has(claim), "the claim is gone")


def test_all_children_deleted_by_hand_come_back(job: PretendedTraining) -> None:
    job.start()
    before = job.identities(job.children)
    assert len(before) == len(job.children)

    job.kubectl.run("delete", "--wait=false", *job.children)

    def are_back() -> bool:
        # What still ends may be gone at the next question.
        now = job.identities(job.children)
        return len(now) == len(job.children) and not now & before

    job.wait_until(are_back, "all children are made again")


def test_a_child_edited_by_hand_is_what_it_was(job: PretendedTraining) -> None:
    job.start()
    shards = f"statefulset/{job.name}-shard"
    job.kubectl.run("scale", shards, "--replicas=0")

    job.wait_until(lambda: job.kubectl.get(*shards.split("/"))["spec"]["replicas"] == 2, "2 shards")
    job.wait_until(lambda: len(job.pods("shard")) == 2, "they run")


def test_suspending_stops_all_and_resuming_starts_all(job: PretendedTraining) -> None:
    job.apply(suspend=True)
    job.wait_for_phase("Suspended")
    assert job.pods() == []
    job.patch(suspend=False)
    job.wait_for_phase("Running")

    job.patch(suspend=True)
    job.wait_for_phase("Suspended")
    job.wait_until(lambda: job.pods() == [], "no pod is left")
    job.patch(suspend=False)
    job.wait_for_phase("Running")
    # The phase does not wait for the coordinator, nor for the second replica.
    job.wait_until(lambda: len(job.pods()) == 5, "all are made again")


@pytest.mark.landing
def test_replicas_follow_kubectl_scale_and_a_pod_autoscaler(job: PretendedTraining) -> None:
    job.start()
    job.kubectl.run("scale", job.resource, "--replicas=1")
    job.wait_until(lambda: len(job.pods("replica")) == 1, "1 replica")

    # It raises the count to its minimum without a measure, which nobody gives here.
    job.kubectl.run(
        "autoscale", job.resource, f"--min={HPA_MINIMUM}", "--max=5", "--cpu-percent=80"
    )
    job.wait_until(
        lambda: job.get()["spec"]["replicas"]["count"] == HPA_MINIMUM, "it owns the count"
    )
    job.wait_until(lambda: job.status().get("readyReplicas") == HPA_MINIMUM, "they are ready")
    assert len(job.pods("shard")) == 2
    job.kubectl.run("delete", f"horizontalpodautoscaler/{job.name}")


def test_it_is_deleted_when_its_time_after_the_end_is_over(job: PretendedTraining) -> None:
    job.start(ttlSecondsAfterFinished=KEEP_SECONDS)
    began = time.monotonic()
    job.finish()
    ended = time.monotonic()

    job.wait_until(lambda: not job.has(job.resource), "it is deleted")
    deleted = time.monotonic()
    print(f"deleted {deleted - ended - KEEP_SECONDS:.1f} s after it was due")  # noqa: T201
    # The time of its end is told in whole seconds.
    assert deleted - began > KEEP_SECONDS - 1, "it was not kept"
    assert deleted - ended < KEEP_SECONDS + SOON_SECONDS, "it was kept"
    job.wait_until(lambda: job.leftovers() == [], "nothing is left")


def test_past_its_deadline_it_fails_and_stops(job: PretendedTraining) -> None:
    job.apply(activeDeadlineSeconds=6)

    assert job.wait_for_condition("Failed")["reason"] == "DeadlineExceeded"
    job.wait_until(lambda: job.pods() == [], "no pod is left")


def test_a_job_that_does_not_begin_in_time_fails(job: PretendedTraining) -> None:
    # With an image that is there it may begin in time.
    job.apply(pendingDeadlineSeconds=3, image="test.disttrain.dev/nothing:1")

    assert job.wait_for_condition("Failed")["reason"] == "PendingDeadlineExceeded"
    job.wait_until(lambda: job.pods() == [], "no pod is left")


def test_deleted_and_applied_at_once_it_runs(job: PretendedTraining) -> None:
    job.start()
    before = job.get()["metadata"]["uid"]

    job.kubectl.run("delete", job.resource, "--wait=false")
    job.kubectl.wait_until("delete", job.resource)
    job.start()

    after = job.get()["metadata"]["uid"]
    assert after != before
    job.wait_until(lambda: job.uids_of_jobs() == {after}, "the former job's pods are gone")


def test_deleted_at_any_stage_it_leaves_nothing(
    job: PretendedTraining, shared_namespace: Kubectl
) -> None:
    stages = {stage: PretendedTraining(shared_namespace, f"{stage}-stage") for stage in STAGES}
    for stage, one in stages.items():
        one.apply(**STAGES[stage])
    stages["pending"].wait_for_condition("CannotStart")
    stages["suspended"].wait_for_phase("Suspended")
    for stage in ("complete", "failed", "running"):
        stages[stage].wait_for_phase("Running")
    stages["complete"].finish()
    stages["failed"].finish("Failed", "Diverged")
    stages["complete"].wait_for_condition("Complete")
    stages["failed"].wait_for_condition("Failed")

    # One goes when nothing, or half of it, is made.
    job.apply()
    for one in (job, *stages.values()):
        one.kubectl.run("delete", one.resource, "--wait=false")

    for one in (job, *stages.values()):
        one.wait_until(partial(_is_gone, one), "nothing is left")


STAGES: dict[str, dict[str, object]] = {
    "pending": {"image": "test.disttrain.dev/nothing:1"},
    "suspended": {"suspend": True},
    "running": {},
    "complete": {},
    "failed": {},
}


def _is_gone(job: PretendedTraining) -> bool:
    return not job.has(job.resource) and job.leftovers() == []


def test_a_job_that_somebody_else_manages_is_left_alone(job: PretendedTraining) -> None:
    job.apply(managedBy="example.com/other")
    ours = PretendedTraining(job.kubectl, "ours")
    ours.apply(suspend=True)

    ours.wait_for_phase("Suspended")
    assert "status" not in job.get()
    commands.wait_until(lambda: job.leftovers() == [], "nothing was made")
    ours.delete()
