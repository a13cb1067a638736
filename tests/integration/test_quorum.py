"""Jobs that merge by a quorum: kills of every role lose no account, and a record gives the bits."""

from pathlib import Path

import pytest

from builders import local_steps_jobs
from builders.at_night import others_at_night
from builders.commands import disttrain
from builders.local_steps_jobs import EPOCHS, SAMPLES, applied
from builders.runs import RunningJob

COUNTING = local_steps_jobs.counting("{steps: 6, quorum: 2, graceSeconds: 0.1}", "count: 3")
PROVING = local_steps_jobs.proving(
    """
    quorum: 2
    outer: {nesterov: {learningRate: 0.5}}
    optimizer: {name: AdamW, arguments: {lr: 0.01}}
    """,
    "count: 2",
    record=True,
)


@pytest.mark.parametrize("adopt", ["replace", "add"])
def test_kills_of_every_role_lose_no_account(tmp_path: Path, adopt: str) -> None:
    """Nobody waits for the killed replica, and what it pushed counts."""
    with RunningJob(tmp_path, [f"spec.strategy.localSteps.adopt={adopt}"], COUNTING) as job:
        local_steps_jobs.kill_every_role(job, replicas=3)
        job.assert_promises_held()


def test_a_job_is_resumed_with_what_was_not_merged(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [], COUNTING) as job:
        job.wait_until(lambda status: applied(status, 0.3) and status["checkpoints"] >= 1)
        job.interrupt()
        job.wait()
        job.resume()
        assert job.wait() == 0

        assert job.summary()["samples"] == EPOCHS * SAMPLES
        job.assert_promises_held()


@pytest.mark.parametrize(
    "settings", others_at_night("adopt=add", "adopt=replace", "graceSeconds=0.2")
)
def test_a_recorded_run_is_replayed_bit_for_bit(tmp_path: Path, settings: str) -> None:
    """Merges are in the record, so that a replay knows no clock."""
    with RunningJob(tmp_path, [f"spec.strategy.localSteps.{settings}"], PROVING) as job:
        assert job.wait() == 0

        answer = disttrain("replay", job.output)
    assert answer.code == 0, answer
    assert "bit-identical" in answer.out
