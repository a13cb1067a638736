"""What a person does to a real job while it trains."""

import pytest

from builders import cluster_training
from builders.cluster_training import ClusterTraining, assert_nothing_was_lost_or_repeated

pytestmark = pytest.mark.landing


def test_a_job_is_suspended_resumed_and_scaled_while_it_trains(job: ClusterTraining) -> None:
    # No checkpoint but the one that suspending writes.
    seldom = {"everySeconds": 1000}
    job.apply(checkpoint=seldom, coordinator=cluster_training.PATIENT)
    job.train()
    job.patch(suspend=True)
    job.wait_for_condition("Suspended")
    job.wait_until(lambda: job.pods() == [], "no pod is left")
    before, started = job.samples(), job.status()["startTime"]
    assert 0 < before < cluster_training.EPOCHS * cluster_training.SAMPLES
    assert not job.has_summary()

    job.patch(suspend=False)
    job.wait_until(lambda: job.samples() > before, "training goes on")
    job.wait_until(lambda: job.status().get("startTime", "") > started, "it began anew")
    job.kubectl.run("scale", job.resource, "--replicas=4")
    job.wait_until(lambda: job.status().get("readyReplicas") == 4, "4 replicas train")
    job.wait_until(
        lambda: job.condition("ReplicasAvailable")["message"] == "4 of 4 replicas", "it is told"
    )
    job.kubectl.run("scale", job.resource, "--replicas=1")
    job.wait_until(lambda: len(job.pods("replica")) == 1, "1 replica is left")

    # No audit: it wants training to move again within a minute, a suspension included.
    summary = job.end()
    assert_nothing_was_lost_or_repeated(job, summary)
    assert {"Suspended", "Resumed", "Complete"} <= set(job.events())
