"""What a person does to a real job while it trains, and what one is told of a job that cannot."""

import pytest

from builders import cluster_training
from builders.cluster_training import (
    NAME,
    ClusterTraining,
    assert_nothing_was_lost_or_repeated,
)

pytestmark = pytest.mark.timeout(500, func_only=True)


def test_a_job_is_suspended_resumed_and_scaled_while_it_trains(job: ClusterTraining) -> None:
    # No checkpoint but the one that suspending writes.
    job.apply(checkpoint={"everySeconds": 1000})
    job.train()
    job.patch(suspend=True)
    job.wait_for_condition("Suspended")
    job.wait_until(lambda: job.pods() == [], "no pod is left")
    before, started = job.samples(), job.status()["startTime"]
    assert 0 < before < cluster_training.EPOCHS * cluster_training.SAMPLES
    assert not (job.folder / "summary.json").exists()

    job.patch(suspend=False)
    job.wait_until(lambda: job.samples() > before, "training goes on")
    assert job.status()["startTime"] > started
    job.kubectl.run("scale", job.resource, "--replicas=4")
    job.wait_until(lambda: job.status().get("readyReplicas") == 4, "4 replicas train")
    job.wait_until(
        lambda: job.condition("ReplicasAvailable")["message"] == "4 of 4 replicas", "it is told"
    )
    job.kubectl.run("scale", job.resource, "--replicas=1")
    job.wait_until(lambda: len(job.pods("replica")) == 1, "1 replica is left")

    summary = job.complete()
    assert_nothing_was_lost_or_repeated(job, summary)
    assert {"Suspended", "Resumed", "Complete"} <= set(job.events())


def test_a_job_deleted_and_applied_again_at_once_leaves_nothing_behind(
    job: ClusterTraining,
) -> None:
    job.apply()
    job.train()
    first = job.uid
    job.delete()
    job.apply()

    assert job.uid != first
    job.train()
    uids = {pod["metadata"]["labels"]["disttrain.dev/job-uid"] for pod in job.kubectl.items("pods")}
    assert uids == {job.uid}
    job.delete()
    job.wait_until(lambda: job.leftovers() == [], "all but the volume is gone")
    claim = job.kubectl.get("persistentvolumeclaim", f"{NAME}-checkpoints")
    assert claim["status"]["phase"] == "Bound"


def test_a_task_that_cannot_be_imported_fails_in_its_own_words(job: ClusterTraining) -> None:
    job.apply(task="broken_import:Task")

    failed = job.wait_for_condition("Failed")
    assert "a_module_that_nobody_has" in failed["message"]
    assert job.status()["phase"] == "Failed"
    job.wait_until(
        lambda: job.pods("replica") == [] and job.pods("shard") == [], "nothing tries again"
    )
    assert "Failed" in job.events()
