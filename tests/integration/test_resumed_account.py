"""A run in which a replica died goes on, more than once, and so does its account of the data."""

from collections.abc import Callable
from pathlib import Path

import pytest

from builders.runs import RunningJob

STEPS, REPLICAS, BATCH_SIZE = 40, 2, 8
"""Steps are those that each incarnation takes before the gate is open."""
BEFORE_THE_KILL = REPLICAS * STEPS * BATCH_SIZE
AFTER_IT = BEFORE_THE_KILL + STEPS * BATCH_SIZE


def interrupt(job: RunningJob, gate: Path) -> None:
    """Nobody can stop in the midst of a step, so the gate is opened."""
    gate.touch()
    job.interrupt()
    assert job.wait() == 130
    assert job.summary()["samplesRepeated"] == 0


def kill_coordinator_and_interrupt(job: RunningJob, gate: Path) -> None:
    job.kill("coordinator")
    job.wait_until(lambda status: status["restarts"]["coordinator"] == 1)
    interrupt(job, gate)


def kill(job: RunningJob, gate: Path) -> None:
    """When a checkpoint has everything: of two the second was begun after it."""
    checkpoints = job.status()["checkpoints"] + 2
    job.wait_until(lambda status: status["checkpoints"] >= checkpoints)
    job.kill_launcher()
    gate.touch()


@pytest.mark.parametrize(
    ("stop", "every_seconds"),
    [(interrupt, 1000), (kill_coordinator_and_interrupt, 1000), (kill, 2)],
)
def test_what_a_dead_replica_did_is_not_counted_again_by_a_resume(
    tmp_path: Path, stop: Callable[[RunningJob, Path], None], every_seconds: int
) -> None:
    """Shards forget who died some checkpoints ago, so there are few of them."""
    gate = tmp_path / "gate"
    settings = [
        f"spec.task.arguments={{gate: {gate}}}",
        "spec.stop.epochs=1000000",
        f"spec.checkpoint.everySeconds={every_seconds}",
    ]
    with RunningJob(tmp_path, settings) as job:
        job.wait_until(lambda status: status["samples"] == BEFORE_THE_KILL)
        job.kill("replica-0")
        found = job.wait_until(lambda status: status["samples"] == AFTER_IT)
        assert found["restarts"]["replica"] == 1
        stop(job, gate)
        job.assert_promises_held()

        go_on(job, gate, beyond=AFTER_IT)
        go_on(job, gate, beyond=job.summary()["samples"])


def go_on(job: RunningJob, gate: Path, *, beyond: int) -> None:
    """Resume, and interrupt when more samples are done."""
    job.resume()
    job.wait_until(lambda status: status["phase"] == "Running" and status["samples"] > beyond)
    interrupt(job, gate)
    job.assert_promises_held()
