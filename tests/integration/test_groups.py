"""Replicas of two processes: what strikes one of them ends both, and nobody else."""

import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from builders.at_night import others_at_night, strikes
from builders.runs import TASKS, RunningJob, has_restarted

SAMPLES = 1024
OF_TWO = "spec.replicas.partitions=2"
COUNTING = "spec.task.entrypoint=counting:CountingInParts"
SOON = "spec.coordinator={heartbeatSeconds: 0.2, leaseSeconds: 3, memberTimeoutSeconds: 10}"
"""Nobody waits as long for a core."""
MEMBERS = ("replica-0-0", "replica-0-1")
OTHERS = ("coordinator", "shard-0", "shard-1", "replica-1-0", "replica-1-1")

DIGITS = f"""\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {{name: digits}}
spec:
  task:
    entrypoint: digits:Digits
    arguments: {{width: 8, hidden: 32}}
  strategy:
    downpour:
      optimizer: {{adagrad: {{learningRate: 0.02}}}}
      warmStart: {{samples: 1440}}
  batchSize: 32
  stop: {{epochs: 12}}
  audit: full
  {SOON.removeprefix("spec.").replace("=", ": ")}
  parameterServer: {{shards: 2}}
  replicas: {{count: 2, partitions: 2, device: cpu}}
  failurePolicy: {{restartBackoff: {{initialSeconds: 0.1, maxSeconds: 1}}}}
"""
_TASK = TASKS.parents[1] / "examples" / "digits" / "digits.py"


def digits(folder: Path, *assignments: str) -> RunningJob:
    (folder / _TASK.name).write_bytes(_TASK.read_bytes())
    return RunningJob(folder, assignments, DIGITS)


def gated(folder: Path) -> str:
    """No process of a counting job gets far before this file is there."""
    return f"spec.task.arguments={{gate: {folder / 'gate'}}}"


def slow(folder: Path, step_seconds: float) -> str:
    """Steps end, and take long until this file is there."""
    return f"spec.task.arguments={{step_seconds: {step_seconds}, hurry: {folder / 'hurry'}}}"


def wait_until_all_train(job: RunningJob) -> None:
    """A replica that lives has not formed its group yet, and one alone gets samples."""
    leaders = ("replica-0-0", "replica-1-0")

    def has_begun(status: dict[str, Any]) -> bool:
        is_warm = status.get("warmStart", False)
        return not is_warm and status.get("liveReplicas") == 2 and status["samples"] >= SAMPLES // 8

    job.wait_until(
        lambda status: has_begun(status) and all(" trains " in job.log(name) for name in leaders)
    )


def pids(job: RunningJob, names: tuple[str, ...]) -> list[int]:
    return [job.pid(name) for name in names]


def incarnations(status: dict[str, Any]) -> dict[str, tuple[int, str]]:
    return {one["name"]: (one["incarnation"], one["state"]) for one in status["members"]}


def strike(job: RunningJob, name: str, number: int) -> None:
    """Signal a member; return when its group has a new incarnation that is whole."""
    before = pids(job, MEMBERS)
    job.signal(name, number)
    struck = job.wait_until(
        lambda status: all(incarnations(status).get(one) == (2, "live") for one in MEMBERS)
    )
    assert struck["liveReplicas"] == 2
    after = pids(job, MEMBERS)
    assert all(new != old for new, old in zip(after, before, strict=True))


@pytest.mark.parametrize(("name", "number"), strikes(MEMBERS))
def test_both_processes_of_a_replica_are_replaced_and_nobody_else(
    tmp_path: Path, name: str, number: int
) -> None:
    # One replica alone warms up: that takes no slow steps.
    at_once = "spec.strategy.downpour.warmStart=null"
    task = "spec.task.entrypoint=slow_digits:SlowDigits"
    with digits(tmp_path, task, slow(tmp_path, 1.0), at_once) as job:
        wait_until_all_train(job)
        others = pids(job, OTHERS)
        strike(job, name, number)
        (tmp_path / "hurry").touch()
        assert job.wait() == 0

        assert pids(job, OTHERS) == others
        assert job.summary()["restarts"] == {"coordinator": 0, "shard": 0, "replica": 1}
        assert job.summary()["finalMeasures"]["accuracy"] > 0.9
        job.assert_promises_held()


def test_every_sample_is_applied_in_spite_of_a_follower_that_is_killed(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [OF_TWO, COUNTING, gated(tmp_path)]) as job:
        wait_until_all_train(job)
        strike(job, "replica-0-1", signal.SIGKILL)
        (tmp_path / "gate").touch()
        assert job.wait() == 0

        summary = job.summary()
        # A row of each partition. What was on its way has reached the shards of one of them alone.
        for counts in load_file(job.output / "model.safetensors")["counts.weight"]:
            assert int(counts.min()) >= 2
            assert int(counts.sum()) - 2 * SAMPLES <= summary["samplesRepeated"]
        assert summary["restarts"]["replica"] == 1
        job.assert_promises_held()


@pytest.mark.parametrize("name", others_at_night(*MEMBERS))
def test_a_replica_drains_whichever_of_its_processes_is_told_to_leave(
    tmp_path: Path, name: str
) -> None:
    with RunningJob(tmp_path, [OF_TWO, COUNTING, slow(tmp_path, 1.0)]) as job:
        wait_until_all_train(job)
        strike(job, name, signal.SIGTERM)
        assert " left " in job.log("replica-0-0")
        (tmp_path / "hurry").touch()
        assert job.wait() == 0

        assert job.summary()["samplesRepeated"] == 0
        assert job.summary()["restarts"]["replica"] == 1
        job.assert_promises_held()


def test_an_error_in_all_partitions_at_once_is_told_without_a_restart(tmp_path: Path) -> None:
    task = "spec.task.entrypoint=counting:FailsLateInParts"
    with RunningJob(tmp_path, [OF_TWO, task]) as job:
        assert job.wait() == 1
        assert "a mistake that shows late" in job.printed()
        assert "starts again" not in job.printed()


def test_a_coordinator_that_comes_back_finds_its_groups_whole(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [OF_TWO, COUNTING, gated(tmp_path)]) as job:
        wait_until_all_train(job)
        before = pids(job, (*MEMBERS, *OTHERS[1:]))
        job.kill("coordinator")
        job.wait_until(has_restarted("coordinator"))
        (tmp_path / "gate").touch()
        assert job.wait() == 0

        assert pids(job, (*MEMBERS, *OTHERS[1:])) == before
        assert job.summary()["restarts"] == {"coordinator": 1, "shard": 0, "replica": 0}
        job.assert_promises_held()


def test_an_interrupted_job_of_groups_goes_on_later(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [OF_TWO, COUNTING, slow(tmp_path, 1.0)]) as job:
        wait_until_all_train(job)
        job.interrupt()
        job.wait()
        assert job.summary()["phase"] == "Stopped"
        (tmp_path / "hurry").touch()
        job.resume()
        assert job.wait() == 0

        assert job.summary()["phase"] == "Complete"
        job.assert_promises_held()


@pytest.mark.nightly
def test_digits_are_learnt_as_well_as_by_replicas_of_one_process(tmp_path: Path) -> None:
    losses = []
    for partitions in (1, 2):
        folder = tmp_path / str(partitions)
        folder.mkdir()
        with digits(folder, f"spec.replicas.partitions={partitions}") as job:
            assert job.wait() == 0
            losses.append(job.summary()["finalLoss"])
            assert job.summary()["finalMeasures"]["accuracy"] > 0.9
    assert losses[1] < 1.5 * losses[0] + 0.05
