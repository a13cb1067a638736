"""Processes of a real job die while it trains; its user sees it Complete, and what it cost."""

import json
import time
from pathlib import Path

import pytest

from builders.cluster_training import (
    CONTAINER,
    PATIENT,
    ClusterTraining,
    assert_every_sample_was_applied,
    assert_nothing_was_lost_or_repeated,
)
from builders.job_view import LIMIT
from builders.operator_process import OperatorProcess
from cluster import Cluster, commands, volumes

KILLED = 137
MEMBERS = ("replica", "shard")
OUTAGE_SECONDS = 60


def assert_deaths_are_told(job: ClusterTraining, *roles: str) -> None:
    status = job.status()
    deaths = [each for each in status["failures"] if each["exitCode"] == KILLED]
    assert sorted(each["role"] for each in deaths) == sorted(roles)
    assert [status["restarts"][role] for role in roles] == [1] * len(roles)


def test_a_killed_replica_and_a_killed_coordinator_go_on(job: ClusterTraining) -> None:
    job.apply()
    job.train()
    # The incarnation of one that has not joined yet is none that could begin anew.
    job.wait_until(lambda: job.progress().get("liveReplicas") == 2, "both replicas train")
    job.kill("replica")
    job.wait_until(lambda: sorted(job.restarts("replica")) == [0, 1], "the replica's restart")
    assert job.restarts("coordinator") == [0]
    before = job.samples()
    job.kill("coordinator")
    job.wait_until(lambda: job.restarts("coordinator") == [1], "the coordinator's restart")

    summary = job.complete()
    assert summary["samples"] > before > 0
    assert job.restarts("coordinator") == [1]
    assert_deaths_are_told(job, "replica", "coordinator")
    assert summary["restarts"] == {"coordinator": 1, "shard": 0, "replica": 1}
    assert summary["updatesLost"] == 0
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
    assert_deaths_are_told(job, "shard")
    assert summary["restarts"] == {"coordinator": 0, "shard": 1, "replica": 0}
    assert summary["updatesLost"] == sum(summary["updatesLostBySender"].values())
    # An element of the first shard counts that shard's updates; what it lost is told.
    applied = int(job.trained()["first_updates"][0])
    assert applied + summary["updatesLost"] >= summary["steps"]


@pytest.mark.landing
def test_a_shard_that_hangs_is_restarted_by_its_kubelet(
    own_cluster: Cluster, job: ClusterTraining
) -> None:
    # Who is stopped cannot use the time to end.
    job.apply(pods={"terminationGracePeriodSeconds": 5})
    job.train()
    own_cluster.stop_container(job.kubectl.namespace, job.running("shard"), CONTAINER)

    job.wait_until(lambda: sorted(job.restarts("shard")) == [0, 1], "the shard's restart")
    # A kubelet tells it by and by, and anew where the API server did not take it.
    job.wait_until(lambda: any("failed liveness probe" in each for each in told(job)), "its reason")
    summary = job.complete()
    assert summary["restarts"] == {"coordinator": 0, "shard": 1, "replica": 0}


def told(job: ClusterTraining) -> list[str]:
    """All events of the job's namespace."""
    return [event["message"] for event in job.kubectl.items("events")]


def samples_in(folder: Path) -> int:
    """Without the API server nobody reads the volume for us."""
    return int(json.loads((folder / "status.json").read_text())["samples"])


@pytest.mark.alone
@pytest.mark.landing
@pytest.mark.timeout(1200, func_only=True)
def test_training_needs_neither_operator_nor_api_server(
    own_cluster: Cluster, job: ClusterTraining, operator_to_kill: OperatorProcess
) -> None:
    job.apply(coordinator=PATIENT)
    job.wait_until(lambda: job.leftovers() != [], "the first object of the job")
    operator_to_kill.kill()
    operator_to_kill.start()
    job.train()
    made = {pod["metadata"]["uid"] for role in MEMBERS for pod in job.pods(role)}
    assert len(made) == 4

    operator_to_kill.kill()
    folder = volumes.folder_of(job.kubectl, job.claim) / job.folder
    own_cluster.stop_api_server()
    try:
        stopped, before = time.monotonic(), samples_in(folder)
        commands.wait_until(
            lambda: time.monotonic() - stopped > OUTAGE_SECONDS and samples_in(folder) > before,
            "it trains without an operator and without an API server",
            limit=LIMIT,
        )
    finally:
        own_cluster.start_api_server()
        operator_to_kill.start()

    assert not (folder / "summary.json").exists(), "the job ended before they were back"
    job.wait_until(
        lambda: job.status().get("training", {}).get("samples", 0) > before, "the status catches up"
    )
    summary = job.complete()
    kept = {pod["metadata"]["uid"] for role in MEMBERS for pod in job.pods(role)}
    assert kept <= made
    assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 0}
    assert_nothing_was_lost_or_repeated(job, summary)
    events = job.events()
    assert len(events) == len(set(events))
    assert "Complete" in events
