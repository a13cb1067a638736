"""Certificates that are valid for a minute: pods renew them, and nobody is kept out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import cluster_training, helm, operator_process
from builders.cluster_training import ClusterTraining
from builders.operator_process import OperatorProcess
from cluster import Kubectl

pytestmark = pytest.mark.landing
SHORTEST = {helm.CERTIFICATE_SECONDS: "60"}
RENEWED = "certificate renewed"
STEP_SECONDS = 6.0
"""256 steps: twelve minutes on two replicas, unless the test asks for the end."""


@pytest.fixture
def operator_to_kill(
    image_of_jobs: None, namespace: Kubectl, tmp_path: Path
) -> Iterator[OperatorProcess]:
    """The operator of the test's namespace, whose certificates end soon."""
    environment = cluster_training.environment() | SHORTEST
    with operator_process.running(namespace, tmp_path / "operator.log", **environment) as process:
        yield process
    namespace.run("delete", "disttrainjobs", "--all", "--ignore-not-found")


def renewals(job: ClusterTraining) -> dict[str, int]:
    """How often each pod's present process says that it has renewed its certificate."""
    names = [pod["metadata"]["name"] for pod in job.pods()]
    return {name: job.kubectl.run("logs", name).count(RENEWED) for name in names}


def all_have_renewed(job: ClusterTraining, times: int) -> bool:
    """Whether the five pods have done so."""
    found = renewals(job)
    return len(found) == 5 and min(found.values()) >= times


def test_who_connects_anew_shows_the_renewed_certificate(job: ClusterTraining) -> None:
    job.apply(step_seconds=STEP_SECONDS, coordinator=cluster_training.PATIENT)
    # After the second renewal the first certificate is no longer valid.
    job.wait_until(lambda: all_have_renewed(job, 2), "all pods have renewed their certificates")
    for role in ("shard", "coordinator"):
        job.kill(role)
        goes_on(job, f"training goes on after the end of a {role}")

    summary = job.complete()
    cluster_training.assert_every_sample_was_applied(job, summary)


def goes_on(job: ClusterTraining, what: str) -> None:
    """Wait until more samples are done."""
    samples = job.samples()
    job.wait_until(lambda: job.samples() > samples, what)
