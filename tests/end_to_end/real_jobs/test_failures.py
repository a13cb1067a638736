"""Processes of a real job die while it trains; its user sees it Complete, and what it cost."""

import pytest

from builders.cluster_training import (
    ClusterTraining,
    assert_every_sample_was_applied,
    assert_nothing_was_lost_or_repeated,
)
from builders.operator_process import OperatorProcess

pytestmark = pytest.mark.timeout(500, func_only=True)
KILLED = 137


def assert_death_is_told(job: ClusterTraining, role: str) -> None:
    status = job.status()
    deaths = [each for each in status["failures"] if each["exitCode"] == KILLED]
    assert [each["role"] for each in deaths] == [role]
    assert status["restarts"][role] == 1


def test_a_killed_replica_takes_its_place_again(job: ClusterTraining) -> None:
    job.apply()
    job.train()
    job.kill("replica")

    job.wait_until(lambda: sorted(job.restarts("replica")) == [0, 1], "the replica's restart")
    assert job.restarts("shard") == [0, 0]
    assert job.restarts("coordinator") == [0]
    summary = job.complete()
    assert_death_is_told(job, "replica")
    assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 1}
    assert_every_sample_was_applied(job, summary)


def test_a_killed_shard_restarts_no_replica(job: ClusterTraining) -> None:
    job.apply()
    job.train()
    job.kill("shard")

    job.wait_until(lambda: sorted(job.restarts("shard")) == [0, 1], "the shard's restart")
    before = job.samples()
    job.wait_until(lambda: job.samples() > before, "training goes on")
    assert job.restarts("replica") == [0, 0]
    assert job.restarts("coordinator") == [0]
    summary = job.complete()
    assert_death_is_told(job, "shard")
    assert summary["restarts"] == {"coordinator": 0, "shard": 1, "replica": 0}
    assert summary["updatesLost"] == sum(summary["updatesLostBySender"].values())
    # An element of the first shard counts that shard's updates; what it lost is told.
    applied = int(job.trained()["first_updates"][0])
    assert applied + summary["updatesLost"] >= summary["steps"]


def test_a_killed_coordinator_goes_on_from_its_journal(job: ClusterTraining) -> None:
    job.apply()
    job.train()
    before = job.samples()
    job.kill("coordinator")

    job.wait_until(lambda: job.restarts("coordinator") == [1], "the coordinator's restart")
    summary = job.complete()
    assert summary["samples"] > before > 0
    assert job.restarts("coordinator") == [1]
    assert_death_is_told(job, "coordinator")
    assert summary["restarts"] == {"coordinator": 1, "shard": 0, "replica": 0}
    assert summary["updatesLost"] == 0
    assert_every_sample_was_applied(job, summary)


def test_the_operator_dies_while_it_creates_and_while_the_job_trains(
    job: ClusterTraining, operator_to_kill: OperatorProcess
) -> None:
    job.apply()
    job.wait_until(lambda: job.leftovers() != [], "the first object of the job")
    operator_to_kill.kill()
    operator_to_kill.start()
    job.train()
    made = {pod["metadata"]["uid"] for role in ("replica", "shard") for pod in job.pods(role)}
    operator_to_kill.kill()
    before = job.samples()
    job.wait_until(lambda: job.samples() > before, "it trains without an operator")
    operator_to_kill.start()

    job.wait_until(lambda: job.status().get("phase") == "Running", "the phase is right again")
    kept = {pod["metadata"]["uid"] for role in ("replica", "shard") for pod in job.pods(role)}
    assert kept == made
    assert len(made) == 4
    summary = job.complete()
    assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 0}
    assert_nothing_was_lost_or_repeated(job, summary)
    events = job.events()
    assert len(events) == len(set(events))
    assert {"Accepted", "Running", "Complete"} <= set(events)
