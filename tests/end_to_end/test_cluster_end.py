"""The end of the test cluster, asked for or not: nothing of it stays on the machine."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from builders import pods
from cluster import Cluster, Kubectl, commands, layout, leftovers

START_SECONDS = 150


@pytest.fixture
def stoppable(own_cluster: Cluster) -> Cluster:
    """The cluster, to be removed by the test, which keeps the lock: others wait for it."""
    if own_cluster.is_left_running():
        pytest.skip("this cluster was there before the tests: they do not stop it")
    return own_cluster


def exists(process_id: int) -> bool:
    return Path(f"/proc/{process_id}").exists()


def start_and_die(cluster: Cluster) -> None:
    cluster.start()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_stop_leaves_nothing_behind(stoppable: Cluster, namespace: Kubectl) -> None:
    namespace.apply(pods.restricted("running"))
    namespace.wait_until("Ready", "pod/running")
    before = leftovers.process_ids()
    assert before

    leftovers.remove()
    try:
        assert leftovers.found() == []
        # The machine's first process inherits some, and takes note of their end in its own time.
        commands.wait_until(lambda: not any(map(exists, before)), f"{before} are all gone")
        assert str(layout.state()) not in Path("/proc/mounts").read_text()
        assert "KUBE" not in commands.run("iptables-save")
        assert not Path("/sys/class/net/cni0").exists()
    finally:
        stoppable.start()


def test_the_next_start_removes_the_cluster_of_a_killed_run(stoppable: Cluster) -> None:
    leftovers.remove()
    try:
        # Forked: it shares the lock.
        run = multiprocessing.get_context("fork").Process(target=start_and_die, args=[stoppable])
        run.start()
        run.join(START_SECONDS)
        assert run.exitcode == -signal.SIGKILL
        former = leftovers.process_ids()
        assert former
    finally:
        stoppable.start()

    assert [number for number in former if number in leftovers.process_ids()] == []
    assert len(stoppable.kubectl.items("nodes")) == 1
