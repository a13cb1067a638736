"""Certificates of a real job's pods: renewed, and signed by another key than before."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import cluster_training, helm, operator_process
from builders.cluster_training import ClusterTraining
from builders.operator_process import OperatorProcess
from cluster import Kubectl
from disttrain.job import cluster_names
from disttrain_operator.settings import SigningSettings

pytestmark = pytest.mark.nightly
SHORTEST = {helm.CERTIFICATE_SECONDS: "60"}
RENEWED = "certificate renewed"
STEP_SECONDS = 6.0
"""256 steps: twelve minutes on two replicas, unless the test asks for the end."""


@pytest.fixture
def operator_to_kill(
    image_of_jobs: None, namespace: Kubectl, tmp_path: Path
) -> Iterator[OperatorProcess]:
    """The operator of the test's namespace, whose certificates are valid for a minute."""
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


def test_a_job_is_told_that_the_key_was_replaced_and_goes_on_as_it_says(
    job: ClusterTraining, operator_to_kill: OperatorProcess
) -> None:
    job.apply(step_seconds=STEP_SECONDS, coordinator=cluster_training.PATIENT)
    job.train(0.01)
    operator_to_kill.stop()
    job.kubectl.run("delete", "secret", SigningSettings().secret)
    operator_to_kill.start()

    told = job.wait_for_condition("AuthorityReplaced")["message"]
    goes_on(job, "training goes on by certificates of before")
    secret = cluster_names.launch_secret(job.name, job.uid)
    assert secret in told
    job.kubectl.run("delete", "secret", secret)
    job.wait_until(
        lambda: job.condition("AuthorityReplaced").get("status") != "True", "the key is the new one"
    )
    goes_on(job, "training goes on by new certificates")

    summary = job.complete()
    cluster_training.assert_every_sample_was_applied(job, summary)


def goes_on(job: ClusterTraining, what: str) -> None:
    """Wait until more samples are done."""
    samples = job.samples()
    job.wait_until(lambda: job.samples() > samples, what)
