"""Real jobs that do not end as they should: deleted, failed by a rule, unable to begin."""

import pytest

from builders.cluster_training import NAME, ClusterTraining

pytestmark = pytest.mark.landing


@pytest.mark.nightly
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
    # A replica of the first job may end in its own time while the second one trains.
    job.wait_until(lambda: job.uids_of_jobs() == {job.uid}, "the first job's pods are gone")
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


@pytest.mark.nightly
def test_a_rule_fails_the_job_at_an_exit_code(job: ClusterTraining) -> None:
    rule = {"roles": ["replica"], "exitCodes": [137], "action": "FailJob"}
    job.apply(failurePolicy={"rules": [rule]})
    job.train()
    job.kill("replica")

    failed = job.wait_for_condition("Failed")
    assert failed["reason"] == "FailedByRule"
    assert "spec.failurePolicy.rules[0] (exit code 137" in failed["message"]
    job.wait_until(
        lambda: job.pods("replica") == [] and job.pods("shard") == [], "nothing tries again"
    )
    assert not job.has_summary()
