"""One cluster for all end-to-end tests, and a namespace for each."""

import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from builders import diagnosis, helm, product_images
from cluster import Cluster, Kubectl, Unavailable, binaries, namespaces, prerequisites

TEST_TIMEOUT_SECONDS = 180
RELEASE = "disttrain"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # For the test alone: the first one waits for the cluster, and that for its programs.
    limit = pytest.mark.timeout(TEST_TIMEOUT_SECONDS, func_only=True)
    for item in items:
        here = item.path.is_relative_to(Path(__file__).parent)
        # A test's own limit would count for nothing beside this one.
        if here and item.get_closest_marker("timeout") is None:
            item.add_marker(limit)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        # Before the namespace goes with all that it could tell.
        report.sections.extend(diagnosis.of_all(getattr(item, "funcargs", {}).values()))
    return report


@pytest.fixture(scope="session")
def kubectl(request: pytest.FixtureRequest) -> Kubectl:
    """kubectl as the administrator of the cluster that the caller asked for."""
    if request.config.getoption("--cluster") == "existing":
        return _existing()
    own: Cluster = request.getfixturevalue("own_cluster")
    return own.kubectl


@pytest.fixture(scope="session")
def own_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster of this machine, for tests that break parts of it."""
    if request.config.getoption("--cluster") == "existing":
        yield _left_running()
        return
    reason = prerequisites.reason_against()
    if reason is not None:
        pytest.skip(reason)
    cluster = Cluster()
    try:
        cluster.start()
    except Unavailable as error:
        pytest.skip(str(error))
    try:
        yield cluster
    finally:
        _keep_logs(cluster)
        cluster.stop()


@pytest.fixture
def namespace(kubectl: Kubectl, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl within a new namespace that enforces the restricted Pod Security level."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    name = f"{words}-{os.urandom(3).hex()}"
    yield namespaces.make(kubectl, name)
    namespaces.remove(kubectl, name)


@pytest.fixture
def operator(own_cluster: Cluster, namespace: Kubectl) -> Iterator[str]:
    """The operator of the test's namespace alone, from its image and chart: the release's name."""
    product_images.build_and_load(own_cluster, product_images.operator())
    helm.upgrade(namespace, RELEASE, helm.only_in(namespace))
    yield RELEASE
    # Before the namespace goes, while there is an operator that could make objects again.
    namespace.run("delete", "disttrainjobs", "--all", "--ignore-not-found")
    helm.uninstall(namespace, RELEASE)


@pytest.fixture
def runtime_image(own_cluster: Cluster) -> str:
    """The image that jobs run when they name none, on every node: its name."""
    product_images.build_and_load(own_cluster, product_images.runtime())
    return product_images.RUNTIME


def _left_running() -> Cluster:
    if os.environ.get("KUBECONFIG") != str(Cluster().kubeconfig):
        pytest.skip("this test breaks parts of the cluster: not of one that is not ours")
    try:
        return Cluster.attach()
    except Unavailable as error:
        pytest.skip(str(error))


def _existing() -> Kubectl:
    kubeconfig = os.environ.get("KUBECONFIG")
    if not kubeconfig:
        pytest.fail("--cluster=existing wants the cluster's KUBECONFIG in the environment")
    if "kubernetes" in binaries.missing():
        binaries.build_missing()
    return Kubectl(Path(kubeconfig))


def _keep_logs(cluster: Cluster) -> None:
    folder = os.environ.get("DISTTRAIN_CLUSTER_LOGS")
    if folder:
        cluster.keep_logs(Path(folder))
