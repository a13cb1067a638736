"""Replicas of two processes, each started by environment alone, as pods are."""

import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from builders.at_night import others_at_night
from builders.pod_processes import ALL_OF_TWO, OF_TWO, PodJob
from disttrain.launch.exit_code import ExitCode

pytestmark = pytest.mark.landing

SAMPLES, EPOCHS = 1024, 2
PAIR = ("replica-0-0", "replica-0-1")
OTHERS = tuple(name for name in ALL_OF_TWO if name not in PAIR)
SOON = {"heartbeatSeconds": 0.2, "leaseSeconds": 3, "memberTimeoutSeconds": 10}
"""Nobody waits as long for a core."""


def a_job(folder: Path) -> PodJob:
    """A job whose steps take long until the test has what it wants."""
    slow = {"spec.task.arguments": {"step_seconds": 1.0, "hurry": str(folder / "hurry")}}
    return PodJob(folder, {**OF_TWO, "spec.coordinator": SOON, **slow})


def trains(status: dict[str, Any]) -> bool:
    return bool(status.get("samples", 0) > 0 and status["liveReplicas"] == 2)


def incarnations(job: PodJob) -> set[int]:
    return {job.member(name)["incarnation"] for name in PAIR}


def begin(job: PodJob) -> dict[str, int]:
    """Let all begin; returns who runs besides the pair."""
    job.start(*ALL_OF_TWO)
    job.wait_until(trains)
    return {name: job.processes[name].pid for name in OTHERS}


def end(job: PodJob, folder: Path, others: dict[str, int]) -> None:
    """Start the pair again, as a kubelet does, and see that the job ends as if nothing had been."""
    job.start(*PAIR)
    job.wait_until(lambda status: trains(status) and incarnations(job) == {2})
    (folder / "hurry").touch()
    job.complete()
    summary = job.summary()
    assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 1}
    assert {name: job.processes[name].pid for name in OTHERS} == others
    assert all(job.is_running(name) for name in ALL_OF_TWO[1:])
    counts, other = load_file(job.output / "model.safetensors")["counts.weight"]
    assert counts.equal(other)
    assert int(counts.min()) >= EPOCHS
    assert int(counts.sum()) - EPOCHS * SAMPLES <= summary["samplesRepeated"]
    job.assert_promises_held()


@pytest.mark.parametrize("struck", others_at_night(1, 0))
def test_whose_other_process_is_killed_asks_to_be_started_again(
    tmp_path: Path, struck: int
) -> None:
    with a_job(tmp_path) as job:
        others = begin(job)
        job.kill(PAIR[struck])
        assert job.wait(PAIR[1 - struck]) == ExitCode.RESTART
        end(job, tmp_path, others)


@pytest.mark.parametrize("struck", others_at_night(0, 1))
def test_whose_other_process_says_nothing_does_so_too(tmp_path: Path, struck: int) -> None:
    with a_job(tmp_path) as job:
        others = begin(job)
        job.processes[PAIR[struck]].send_signal(signal.SIGSTOP)
        assert job.wait(PAIR[1 - struck]) == ExitCode.RESTART
        job.kill(PAIR[struck])
        end(job, tmp_path, others)


def test_a_pod_that_is_told_to_end_takes_its_replica_along_and_only_that_comes_again(
    tmp_path: Path,
) -> None:
    with a_job(tmp_path) as job:
        others = begin(job)
        job.tell_to_end(PAIR[0])
        assert job.wait(PAIR[0]) == ExitCode.COMPLETE
        assert job.wait(PAIR[1]) == ExitCode.RESTART, "its pod is to run on"
        end(job, tmp_path, others)


@pytest.mark.parametrize("told", [0, 1])
def test_a_pod_that_is_told_to_end_while_its_replica_forms_ends_the_incarnation_at_once(
    tmp_path: Path, told: int
) -> None:
    with a_job(tmp_path) as job:
        first = PAIR[told]
        job.start("coordinator", "shard-0", "shard-1", first)
        job.wait_until(lambda status: first in {each["name"] for each in status["members"]})
        # From then on it tells the coordinator that it ends.
        job.wait_until(lambda _: "waits for the other processes" in job.log(first))
        job.tell_to_end(first)
        assert job.wait(first) == ExitCode.COMPLETE
        job.wait_until(lambda _: job.member(first)["state"] == "dead")
        assert job.member(first)["reason"] == "SIGTERM"

        job.start(*PAIR)
        job.wait_until(lambda status: status["liveReplicas"] == 1)
        assert incarnations(job) == {2}
