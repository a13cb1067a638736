"""The end of the test cluster, asked for or not: nothing of it stays on the machine."""

import multiprocessing
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from builders import pods
from cluster import Cluster, Kubectl, commands, layout, leftovers, processes

pytestmark = [pytest.mark.alone, pytest.mark.nightly]
START_SECONDS = 150
REMOVAL_LIMIT = timedelta(seconds=100)


@pytest.fixture
def stoppable(own_cluster: Cluster) -> Cluster:
    """The cluster, to be removed by the test, which keeps the lock: others wait for it."""
    if own_cluster.is_left_running():
        pytest.skip("this cluster was there before the tests: they do not stop it")
    return own_cluster


def runs(process_id: int) -> bool:
    """Whether it is more than an exit code, which the machine's first process takes in its time."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in processes.DEAD_STATES


def start_and_die(cluster: Cluster, *, guarded: bool) -> None:
    run = Cluster()
    # Forked, we share it; the guard of the tests' own cluster goes on with them.
    run._lock = cluster._lock
    run.start()
    assert run._guard is not None
    if not guarded:
        run._guard.process.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def a_run_that_is_killed(cluster: Cluster, *, guarded: bool) -> None:
    fork = multiprocessing.get_context("fork")
    run = fork.Process(target=start_and_die, args=(cluster,), kwargs={"guarded": guarded})
    run.start()
    run.join(START_SECONDS)
    assert run.exitcode == -signal.SIGKILL


def test_a_stop_leaves_nothing_behind(stoppable: Cluster, namespace: Kubectl) -> None:
    namespace.apply(pods.restricted("running"))
    namespace.wait_until("Ready", "pod/running")
    before = leftovers.process_ids()
    assert before

    leftovers.remove()
    try:
        assert leftovers.found() == []
        assert [number for number in before if runs(number)] == []
        assert str(layout.state()) not in Path("/proc/mounts").read_text()
        assert "KUBE" not in commands.run("iptables-save")
        assert not Path("/sys/class/net/cni0").exists()
    finally:
        stoppable.start()


def test_a_killed_run_leaves_nothing_behind(stoppable: Cluster) -> None:
    leftovers.remove()
    try:
        a_run_that_is_killed(stoppable, guarded=True)
        commands.wait_until(
            lambda: not layout.state().exists(), "all is removed", limit=REMOVAL_LIMIT
        )
        assert leftovers.found() == []
    finally:
        stoppable.start()


def test_the_next_start_removes_what_a_killed_run_left_all_the_same(stoppable: Cluster) -> None:
    leftovers.remove()
    try:
        a_run_that_is_killed(stoppable, guarded=False)
        former = leftovers.process_ids()
        assert former
    finally:
        stoppable.start()

    assert [number for number in former if number in leftovers.process_ids()] == []
    assert len(stoppable.kubectl.items("nodes")) == 1
