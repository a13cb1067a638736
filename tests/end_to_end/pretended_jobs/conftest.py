"""Jobs that pretend, looked after by one operator in one namespace for each file of tests."""

import os
from collections.abc import Iterator

import pytest

from builders import operator_process, pretended_training
from builders.operator_process import OperatorProcess
from builders.pretended_training import PretendedTraining
from cluster import Kubectl, namespaces
from disttrain_generators import crd


@pytest.fixture(scope="session")
def definition(small_image: str, kubectl: Kubectl) -> None:
    """The cluster knows of jobs; its nodes have the small image."""
    kubectl.apply(crd.definition())
    kubectl.wait_until("Established", f"crd/{crd.NAME}")


@pytest.fixture(scope="module")
def shared_namespace(definition: None, kubectl: Kubectl) -> Iterator[Kubectl]:
    """For jobs that do not mind others; it enforces the restricted Pod Security level."""
    name = f"pretended-jobs-{os.urandom(3).hex()}"
    yield namespaces.make(kubectl, name)
    namespaces.remove(kubectl, name)


@pytest.fixture(scope="module")
def shared_operator(
    shared_namespace: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """The operator of that namespace, which no test breaks."""
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    with operator_process.running(shared_namespace, log) as process:
        yield process


@pytest.fixture
def job(
    shared_namespace: Kubectl, shared_operator: OperatorProcess, request: pytest.FixtureRequest
) -> Iterator[PretendedTraining]:
    """A job of the test's name, to be applied; it goes after the test."""
    made = PretendedTraining(shared_namespace, pretended_training.named_after(request.node.name))
    yield made
    remove(made)


def remove(job: PretendedTraining) -> None:
    """Delete a job, whether or not it is there, and wait for nothing."""
    job.kubectl.run("delete", job.resource, "--ignore-not-found", "--wait=false")
