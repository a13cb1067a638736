"""One cluster for all workers of a run (`pytest -n 3`): their controller starts it and stops it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from cluster import Cluster, Unavailable

_REASON: Final = "reason_against_a_cluster"
"""Under this name each worker gets why there is none, or nothing."""


class Owner:
    """Whoever starts a cluster keeps it for as long as the tests run, and then its logs."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self.reason = ""
        """Why there is none."""

    def start(self) -> None:
        """Start it, or note the reason why that is not possible here."""
        cluster = Cluster()
        try:
            cluster.start()
        except Unavailable as error:
            self.reason = str(error)
        else:
            self.cluster = cluster

    def stop(self) -> None:
        """Stop it, if it was started."""
        if self.cluster is None:
            return
        folder = os.environ.get("DISTTRAIN_CLUSTER_LOGS")
        if folder:
            self.cluster.keep_logs(Path(folder))
        self.cluster.stop()


class Controller:
    """A plugin for the process that hands tests out to workers."""

    def __init__(self) -> None:
        self._owner = Owner()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Start the cluster before there are workers."""
        self._owner.start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_REASON] = self._owner.reason

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Stop the cluster when the workers have ended."""
        try:
            yield
        finally:
            self._owner.stop()


def hands_out_tests(config: pytest.Config) -> bool:
    """Whether this process runs no test, and starts others that do."""
    return bool(config.getoption("numprocesses", default=None)) and not is_worker(config)


def is_worker(config: pytest.Config) -> bool:
    """Whether this process runs tests beside others."""
    return hasattr(config, "workerinput")


def in_worker(config: pytest.Config) -> Cluster:
    """The cluster that the controller started."""
    reason = config.workerinput[_REASON]  # type: ignore[attr-defined]
    if reason:
        there_is_none(config, reason)
    return Cluster()


def is_ours() -> bool:
    """Whether the caller's KUBECONFIG is that of a cluster of this machine."""
    return os.environ.get("KUBECONFIG") == str(Cluster().kubeconfig)


def there_is_none(config: pytest.Config, reason: str) -> NoReturn:
    """Skip the test that needs a cluster, or fail it where the caller wants one to be there.

    The same for what tests on a cluster need beside it.
    """
    if config.getoption("--require-cluster"):
        pytest.fail(f"--require-cluster: {reason}", pytrace=False)
    pytest.skip(reason)
