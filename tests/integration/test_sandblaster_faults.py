"""Processes of a job with a batch method are killed and slowed: the bits are the same."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from builders import batch_jobs
from builders.at_night import at_night, others_at_night
from builders.batch_jobs import BATCH_JOB
from builders.damage import flip_newest, stop_between_checkpoints
from builders.runs import RunningJob, has_restarted, set_field

pytestmark = pytest.mark.landing

WITHOUT_PENALTY = "spec.task.arguments={penalty: 0}"
OF_TWO = "spec.replicas.partitions=2"


def slow(folder: Path, **more: object) -> str:
    """Portions take their time until the test has struck; see `hurry`."""
    arguments = {"portion_seconds": 0.02, "hurry": str(folder / "hurry"), **more}
    return f"spec.task.arguments={json.dumps(arguments)}"


def hurry(job: RunningJob) -> None:
    (job.output.parent / "hurry").touch()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    with RunningJob(tmp_path_factory.mktemp("undisturbed"), [], BATCH_JOB) as job:
        assert job.wait() == 0
        return batch_jobs.exported(job.output)


@pytest.fixture(scope="module")
def undisturbed_pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """Of replicas of two partitions, which add up in another order."""
    found = []
    for name, more in (("one", []), ("pair", [OF_TWO])):
        folder = tmp_path_factory.mktemp(name)
        with RunningJob(folder, [WITHOUT_PENALTY, *more], BATCH_JOB) as job:
            assert job.wait() == 0
            found.append(batch_jobs.exported(job.output))
    one, pair = found
    assert_close(pair, one)
    return pair


def assert_close(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    for name, value in wanted.items():
        assert (found[name] - value).norm() <= 1e-6 * value.norm()


def at(iteration: int) -> Callable[[dict[str, Any]], bool]:
    """Whether a job has come so far."""
    return lambda status: (status.get("sandblaster") or {}).get("iteration", 0) >= iteration


def in_stage(stage: str, groups_done: int = 0) -> Callable[[dict[str, Any]], bool]:
    """Whether a job is in that stage, after some iterations; stages are short and may be missed."""

    def holds(status: dict[str, Any]) -> bool:
        batch = status.get("sandblaster") or {}
        is_there = batch.get("stage") == stage and batch["groupsDone"] >= groups_done
        return at(12)(status) or (at(4)(status) and is_there)

    return holds


def stop_early(job: RunningJob) -> None:
    job.wait_until(at(4))
    job.interrupt()
    job.wait()
    assert job.summary()["phase"] == "Stopped"


def assert_ends_with_the_bits_of(undisturbed: dict[str, Tensor], job: RunningJob) -> None:
    hurry(job)
    assert job.wait() == 0
    assert job.summary()["reason"] == "Converged"
    assert batch_jobs.same_bits(batch_jobs.exported(job.output), undisturbed)
    job.assert_promises_held()


def test_a_killed_replicas_groups_are_computed_by_others(
    tmp_path: Path, undisturbed: dict[str, Tensor]
) -> None:
    with RunningJob(tmp_path, [slow(tmp_path)], BATCH_JOB) as job:
        job.wait_until(in_stage("computing"))
        survivor = job.pid("replica-1")
        job.kill("replica-0")
        job.wait_until(has_restarted("replica"))
        assert_ends_with_the_bits_of(undisturbed, job)

        assert job.summary()["restarts"]["replica"] == 1
        assert job.pid("replica-1") == survivor


@pytest.mark.parametrize("killed", others_at_night(1, 0))
def test_a_replica_of_two_processes_loses_one_and_comes_back_whole(
    tmp_path: Path, undisturbed_pair: dict[str, Tensor], killed: int
) -> None:
    pair = ("replica-0-0", "replica-0-1")
    with RunningJob(tmp_path, [slow(tmp_path, penalty=0), OF_TWO], BATCH_JOB) as job:
        job.wait_until(in_stage("computing"))
        before, others = [job.pid(name) for name in pair], job.pid("replica-1-0")
        job.kill(pair[killed])
        job.wait_until(has_restarted("replica"))
        assert_ends_with_the_bits_of(undisturbed_pair, job)

        assert job.summary()["restarts"] == {"coordinator": 0, "shard": 0, "replica": 1}
        assert {job.pid(name) for name in pair}.isdisjoint(before)
        assert job.pid("replica-1-0") == others


def test_a_replica_that_is_told_to_leave_leaves_its_groups_to_others(
    tmp_path: Path, undisturbed: dict[str, Tensor]
) -> None:
    with RunningJob(tmp_path, [slow(tmp_path)], BATCH_JOB) as job:
        job.wait_until(in_stage("computing"))
        job.signal("replica-0", signal.SIGTERM)
        job.wait_until(lambda _: "left" in job.log("replica-0"))
        assert_ends_with_the_bits_of(undisturbed, job)

        assert "left" in job.log("replica-0")


def test_all_go_on_from_the_checkpoint_before_a_damaged_one(
    tmp_path: Path, undisturbed: dict[str, Tensor]
) -> None:
    with RunningJob(
        tmp_path, [slow(tmp_path), "spec.checkpoint.everySeconds=0.4"], BATCH_JOB
    ) as job:
        job.wait_until(lambda status: status["checkpoints"] >= 3)
        # None is committed before the shard is back: it would have to write its part.
        stop_between_checkpoints(job)
        flip_newest(job.output / "checkpoints")
        job.kill("shard-1")
        job.signal("coordinator", signal.SIGCONT)
        job.wait_until(lambda _: "the one before it is tried" in job.log("shard-1"))
        assert_ends_with_the_bits_of(undisturbed, job)

        summary = job.summary()
        assert summary["checkpointsDamaged"] == 1
        assert summary["restarts"] == {"coordinator": 0, "shard": 1, "replica": 0}
        assert "before one that is damaged" in job.log("coordinator")


@contextmanager
def ten_times_slower(job: RunningJob, name: str) -> Iterator[None]:
    """Let a process run for a tenth of the time."""
    pid, over = job.pid(name), threading.Event()

    def pause_and_go_on() -> None:
        while not over.wait(0.01):
            _tell(pid, signal.SIGSTOP)
            over.wait(0.09)
            _tell(pid, signal.SIGCONT)

    thread = threading.Thread(target=pause_and_go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tell(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def test_groups_of_a_slow_replica_are_copied(
    tmp_path: Path, undisturbed: dict[str, Tensor]
) -> None:
    with RunningJob(tmp_path, [slow(tmp_path)], BATCH_JOB) as job:
        job.wait_until(at(2))
        with ten_times_slower(job, "replica-0"):
            job.wait_until(lambda status: status["sandblaster"]["copies"] >= 1)
            assert_ends_with_the_bits_of(undisturbed, job)

        assert job.summary()["restarts"]["replica"] == 0


@pytest.mark.parametrize(
    ("process", "stage", "groups_done"),
    [
        ("shard-1", "computing", 6),
        ("shard-1", "measuring", 8),
        ("coordinator", "preparing", 0),
        *at_night(
            ("coordinator", "computing", 0),
            ("coordinator", "computing", 6),
            ("coordinator", "measuring", 8),
            ("shard-1", "preparing", 0),
            ("shard-1", "computing", 0),
        ),
    ],
)
def test_a_process_that_is_killed_changes_no_bit(
    tmp_path: Path, undisturbed: dict[str, Tensor], process: str, stage: str, groups_done: int
) -> None:
    with RunningJob(tmp_path, [slow(tmp_path)], BATCH_JOB) as job:
        job.wait_until(in_stage(stage, groups_done))
        job.kill(process)
        role = process.partition("-")[0]
        job.wait_until(has_restarted(role))
        assert_ends_with_the_bits_of(undisturbed, job)

        assert job.summary()["restarts"][role] == 1
        if role == "shard":
            assert job.summary()["sandblaster"]["returns"] >= 1


def test_a_job_that_was_stopped_goes_on_with_the_curvature_that_it_had(
    tmp_path: Path, undisturbed: dict[str, Tensor]
) -> None:
    with RunningJob(tmp_path, [slow(tmp_path)], BATCH_JOB) as job:
        stop_early(job)
        job.resume()
        assert_ends_with_the_bits_of(undisturbed, job)


def test_a_job_that_was_stopped_goes_on_in_partitions_with_the_curvature_that_it_had(
    tmp_path: Path,
) -> None:
    with RunningJob(tmp_path, [slow(tmp_path, penalty=0)], BATCH_JOB) as job:
        stop_early(job)
        stopped_at = job.summary()["sandblaster"]["iteration"]
        set_field(job.output, "replicas.partitions", 2)
        set_field(job.output, "stop.iterations", stopped_at + 3)
        job.resume()
        hurry(job)
        assert job.wait() == 0, job.printed()
        assert job.summary()["sandblaster"]["iteration"] == stopped_at + 3
        job.assert_promises_held()
    found = batch_jobs.flat(batch_jobs.exported(job.output))
    serial = batch_jobs.serial_iterates(penalty=0)
    wanted = serial[stopped_at + 3]
    anew = batch_jobs.serial_iterates(penalty=0, begin=serial[stopped_at])[3]
    assert batch_jobs.distance(found, wanted) < 1e-3 * batch_jobs.distance(anew, wanted)


def test_batches_smaller_than_the_data_give_the_same_bits_too(tmp_path: Path) -> None:
    smaller = ["spec.strategy.sandblaster.batchSize=96", "spec.stop.iterations=15"]
    results = []
    for victim in ("", "replica-0", "shard-0"):
        folder = tmp_path / f"without-{victim}"
        folder.mkdir()
        with RunningJob(folder, [slow(folder), *smaller], BATCH_JOB) as job:
            if victim:
                job.wait_until(in_stage("computing"))
                job.kill(victim)
                job.wait_until(has_restarted(victim.partition("-")[0]))
            hurry(job)
            assert job.wait() == 0
            assert job.summary()["reason"] == "Iterations"
            job.assert_promises_held()
            results.append(batch_jobs.exported(job.output))

    assert batch_jobs.same_bits(results[0], results[1])
    assert batch_jobs.same_bits(results[0], results[2])
    found = batch_jobs.flat(results[0])
    assert batch_jobs.distance(found, batch_jobs.serial_iterates()[-1]) < 0.5
