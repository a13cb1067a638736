"""All processes of a real job start again together, and it goes on from what is on its volume."""

import pytest

from builders.cluster_training import ClusterTraining

pytestmark = pytest.mark.timeout(500, func_only=True)
PODS = 5
LONG_STEP_SECONDS = 2.0
"""256 steps on two replicas then take four minutes: only after half a minute one looks for keys."""


def identities(job: ClusterTraining) -> set[str]:
    return {pod["metadata"]["uid"] for pod in job.pods()}


def wait_for_new_pods(job: ClusterTraining, before: set[str]) -> None:
    def all_are_new() -> bool:
        now = identities(job)
        return len(now) == PODS and not now & before

    job.wait_until(all_are_new, "all pods are new ones")


def test_a_rule_restarts_the_job_from_its_checkpoint(job: ClusterTraining) -> None:
    rule = {"roles": ["shard"], "exitCodes": [137], "action": "RestartJobFromCheckpoint"}
    job.apply(failurePolicy={"rules": [rule]})
    job.train()
    before = identities(job)
    job.kill("shard")

    wait_for_new_pods(job, before)
    summary = job.complete()
    assert job.status()["restarts"]["shard"] == 1
    assert summary["samples"] > 0


def test_keys_that_were_deleted_are_made_again_while_it_trains(job: ClusterTraining) -> None:
    job.apply(step_seconds=LONG_STEP_SECONDS)
    job.train(0.03)
    before = identities(job)
    names = job.kubectl.run("get", "secrets", "-o", "name").split()
    (keys,) = [name for name in names if "-keys-" in name]
    # Who runs has read them already; only who begins without them shows that they are gone.
    job.kubectl.run("delete", keys, f"pod/{job.pods('replica')[0]['metadata']['name']}")

    wait_for_new_pods(job, before)
    assert job.has(keys)
    samples = job.samples()
    job.wait_until(lambda: job.samples() > samples, "training goes on")
    job.delete()
