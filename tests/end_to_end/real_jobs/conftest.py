"""Real jobs, and an operator that a test can kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import cluster_training, helm, operator_process
from builders.cluster_training import ClusterTraining
from builders.operator_process import OperatorProcess
from cluster import Kubectl
from cluster.hooks import Hooks
from disttrain_generators import crd


@pytest.fixture(scope="session")
def image_of_jobs(kubectl: Kubectl, runtime_image: str) -> None:
    """The image that jobs run, on every node, and the definition of jobs."""
    kubectl.apply(crd.definition())
    # An operator that finds none ends at once.
    kubectl.wait_until("Established", f"crd/{crd.NAME}")
    # What the chart installs beside it, for coordinators.
    coordinators = [
        each for each in helm.rendered({}) if each["metadata"]["name"] == "disttrain-coordinator"
    ]
    assert len(coordinators) == 3
    kubectl.apply(*coordinators)


@pytest.fixture
def operator_to_kill(
    image_of_jobs: None, namespace: Kubectl, tmp_path: Path
) -> Iterator[OperatorProcess]:
    """The operator of the test's namespace as a process of this machine; its jobs are real."""
    log = tmp_path / "operator.log"
    with operator_process.running(namespace, log, **cluster_training.environment()) as process:
        yield process
    # Without a finalizer a job goes without an operator, too.
    namespace.run("delete", "disttrainjobs", "--all", "--ignore-not-found")


@pytest.fixture
def job(hooks: Hooks, namespace: Kubectl, operator_to_kill: OperatorProcess) -> ClusterTraining:
    """A real job that can be applied."""
    return ClusterTraining(hooks, namespace)
