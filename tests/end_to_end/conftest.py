"""One cluster for all end-to-end tests, and a namespace for each.

Those that break or take the cluster as a whole have the mark `alone`: workers skip them.
"""

import gc
import os
import re
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from builders import diagnosis, helm, product_images, prometheus, shared_cluster
from cluster import Cluster, Kubectl, Unavailable, binaries, debian, hooks, namespaces
from cluster.hooks import Hooks

TEST_TIMEOUT_SECONDS = 900
"""More than `job_view.LIMIT`, which tells what was waited for in vain."""
USUAL_SECONDS = 20
"""Of a test without a real job, waiting included."""
TRAINING_SECONDS = 60
"""Of a test in which a real job trains, more or less."""
RELEASE = "disttrain"
_IMAGES = {"operator_image", "runtime_image"}


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cluster") == "own" and shared_cluster.hands_out_tests(config):
        config.pluginmanager.register(shared_cluster.Controller())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # For the test alone: the first one waits for the cluster, and that for its programs.
    limit = pytest.mark.timeout(TEST_TIMEOUT_SECONDS, func_only=True)
    disturbed = pytest.mark.skip(reason="it disturbs the tests of other workers: run it without -n")
    for item in items:
        if not item.path.is_relative_to(Path(__file__).parent):
            continue
        # A test's own limit would count for nothing beside this one.
        if item.get_closest_marker("timeout") is None:
            item.add_marker(limit)
        if shared_cluster.is_worker(config) and item.get_closest_marker("alone"):
            item.add_marker(disturbed)
    if shared_cluster.is_worker(config):
        _longest_file_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        # Before the namespace goes with all that it could tell.
        report.sections.extend(diagnosis.of_all(getattr(item, "funcargs", {}).values()))
    return report


@pytest.fixture(autouse=True)
def _told_of_what_it_leaves_open() -> Iterator[None]:
    """A socket that a test forgets fails that test, not the one in which the collector runs."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def kubectl(request: pytest.FixtureRequest) -> Kubectl:
    """kubectl as the administrator of the cluster that the caller asked for."""
    if _is_existing(request.config):
        kubectl: Kubectl = request.getfixturevalue("existing")
        return kubectl
    own: Cluster = request.getfixturevalue("own_cluster")
    return own.kubectl


@pytest.fixture(scope="session")
def existing(tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """kubectl for the cluster that the caller's KUBECONFIG names, whosever it is."""
    kubeconfig = os.environ.get("KUBECONFIG")
    if not kubeconfig:
        pytest.fail("--cluster=existing wants the cluster's KUBECONFIG in the environment")
    if "kubernetes" in binaries.missing():
        binaries.build_missing()
    file = tmp_path_factory.mktemp("kubeconfig") / "flat.json"
    return Kubectl(Path(kubeconfig)).flattened(file)


@pytest.fixture(scope="session", name="hooks")
def hooks_of_the_cluster(request: pytest.FixtureRequest, kubectl: Kubectl) -> Hooks:
    """How images get into the cluster, and how its containers are killed."""
    if not _is_existing(request.config) or shared_cluster.is_ours():
        return Hooks(hooks.OURS)
    try:
        return hooks.given()
    except Unavailable as error:
        shared_cluster.there_is_none(request.config, str(error))


@pytest.fixture(scope="session")
def image_tools(request: pytest.FixtureRequest, hooks: Hooks) -> Hooks:
    """The same, where this machine can build images for the cluster."""
    try:
        debian.install_missing()
    except Unavailable as error:
        reason = f"images are built by Debian's programs: {error}"
        shared_cluster.there_is_none(request.config, reason)
    return hooks


@pytest.fixture(scope="session")
def prometheus_programs(request: pytest.FixtureRequest) -> None:
    """Prometheus and promtool are on this machine."""
    try:
        prometheus.install()
    except Unavailable as error:
        shared_cluster.there_is_none(request.config, str(error))


@pytest.fixture(scope="session")
def small_image(image_tools: Hooks) -> str:
    """The image of pods that only pretend, on every node: its name."""
    return product_images.load_small(image_tools)


@pytest.fixture(scope="session")
def own_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster of this machine, for tests that break parts of it."""
    if _is_existing(request.config):
        yield _left_running()
        return
    if shared_cluster.is_worker(request.config):
        yield shared_cluster.in_worker(request.config)
        return
    owner = shared_cluster.Owner()
    owner.start()
    if owner.cluster is None:
        shared_cluster.there_is_none(request.config, owner.reason)
    try:
        yield owner.cluster
    finally:
        owner.stop()


@pytest.fixture
def namespace(kubectl: Kubectl, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl within a new namespace that enforces the restricted Pod Security level."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    name = f"{words}-{os.urandom(3).hex()}"
    yield namespaces.make(kubectl, name)
    namespaces.remove(kubectl, name)


@pytest.fixture(scope="session")
def operator_image(image_tools: Hooks) -> str:
    """The operator's image, on every node: its name."""
    return product_images.build_and_load(image_tools, product_images.operator())


@pytest.fixture(scope="session")
def runtime_image(image_tools: Hooks) -> str:
    """The image that jobs run when they name none, on every node: its name."""
    return product_images.build_and_load(image_tools, product_images.runtime())


@pytest.fixture
def operator(operator_image: str, namespace: Kubectl) -> Iterator[str]:
    """The operator of the test's namespace alone, from its image and chart: the release's name."""
    helm.upgrade(namespace, RELEASE, helm.only_in(namespace))
    yield RELEASE
    # Before the namespace goes, while there is an operator that could make objects again.
    namespace.run("delete", "disttrainjobs", "--all", "--ignore-not-found")
    helm.uninstall(namespace, RELEASE)


def _is_existing(config: pytest.Config) -> bool:
    return str(config.getoption("--cluster")) == "existing"


def _left_running() -> Cluster:
    if not shared_cluster.is_ours():
        pytest.skip("this test breaks parts of the cluster: not of one that is not ours")
    try:
        return Cluster.attach()
    except Unavailable as error:
        pytest.skip(str(error))


def _longest_file_first(items: list[pytest.Item]) -> None:
    """Order them by what their files may take: workers take whole files, and end together.

    But one without images goes before all: the others wait until the first has built them.
    """
    seconds: Counter[Path] = Counter()
    with_images = {item.path for item in items if _IMAGES & set(_fixtures(item))}
    for item in items:
        trains = "runtime_image" in _fixtures(item)
        seconds[item.path] += TRAINING_SECONDS if trains else USUAL_SECONDS
    without = [path for path in seconds if path not in with_images]
    # Every worker has to find the same order: a set's would be another in each.
    first = max(without, key=lambda path: (seconds[path], path), default=None)
    items.sort(key=lambda item: (item.path != first, -seconds[item.path], item.path))


def _fixtures(item: pytest.Item) -> list[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else []
