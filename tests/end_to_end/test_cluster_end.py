"""The end of the test cluster, asked for or not: nothing of it stays on the machine."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builders import pods
from cluster import Cluster, Kubectl, commands, layout, leftovers

TESTS = Path(__file__).parent.parent
START_AND_DIE = """
import os, signal
from cluster import Cluster
cluster = Cluster()
cluster.start()
os.kill(os.getpid(), signal.SIGKILL)
"""
START_SECONDS = 150


def test_a_stop_leaves_nothing_behind(own_cluster: Cluster, namespace: Kubectl) -> None:
    if own_cluster.is_left_running():
        pytest.skip("this cluster was there before the tests: they do not stop it")
    namespace.apply(pods.restricted("running"))
    namespace.wait_until("Ready", "pod/running")
    before = leftovers.process_ids()
    assert len(before) > len(own_cluster.nodes)

    own_cluster.stop()
    try:
        assert leftovers.found() == []
        assert [number for number in before if Path(f"/proc/{number}").exists()] == []
        assert str(layout.state()) not in Path("/proc/mounts").read_text()
        assert "KUBE" not in commands.run("iptables-save")
        assert not Path("/sys/class/net/cni0").exists()
    finally:
        own_cluster.start()


def test_the_next_start_removes_the_cluster_of_a_killed_run(own_cluster: Cluster) -> None:
    if own_cluster.is_left_running():
        pytest.skip("this cluster was there before the tests: they do not stop it")
    own_cluster.stop()
    try:
        killed = subprocess.run(
            [sys.executable, "-c", START_AND_DIE], cwd=TESTS, timeout=START_SECONDS, check=False
        )
        assert killed.returncode == -signal.SIGKILL
        former = leftovers.process_ids()
        assert former
    finally:
        own_cluster.start()

    assert [number for number in former if number in leftovers.process_ids()] == []
    assert len(own_cluster.kubectl.items("nodes")) == 1
