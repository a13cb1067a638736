"""All processes of a real job start again together, and it goes on from what is on its volume."""

import pytest

from builders import pods
from builders.cluster_training import ClusterTraining

pytestmark = pytest.mark.nightly
PODS = 5
CLAIM = "mine"


def make_claim(job: ClusterTraining) -> None:
    """A claim of the user's own."""
    job.claim = CLAIM
    job.kubectl.apply(pods.claim(CLAIM))


def test_a_rule_restarts_the_job_from_its_checkpoint_on_a_given_claim(
    job: ClusterTraining,
) -> None:
    rule = {"roles": ["shard"], "exitCodes": [137], "action": "RestartJobFromCheckpoint"}
    make_claim(job)
    volume = {"volume": {"claimName": CLAIM}, "everySeconds": 2}
    job.apply(failurePolicy={"rules": [rule]}, checkpoint=volume)
    job.train()
    before = job.uids()
    job.kill("shard")

    def all_are_new() -> bool:
        now = job.uids()
        return len(now) == PODS and not now & before

    job.wait_until(all_are_new, "all pods are new ones")
    summary = job.complete()
    assert job.status()["restarts"]["shard"] == 1
    assert summary["samples"] > 0
    assert not job.has(f"persistentvolumeclaim/{job.name}-checkpoints"), "no other was made"
