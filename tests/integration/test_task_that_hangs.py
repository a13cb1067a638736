"""A replica whose task does not return, while its heartbeats go on, gives up its portions."""

from pathlib import Path

import psutil
import pytest

from builders.runs import COUNTING, RunningJob

HANGING = COUNTING.replace("counting:Counting", "counting:Hanging")


CALLS = {
    "loss": "call=Hanging.loss()",
    "sample": "call=Stuck.__getitem__(",
    "worker": 'call="reading a batch"',
}


@pytest.mark.parametrize("place", CALLS)
def test_a_replica_that_hangs_is_started_again_and_every_sample_counts(
    tmp_path: Path, place: str
) -> None:
    assignments = (
        f"spec.task.arguments={{place: {place}, marker: {tmp_path}/hangs, step_seconds: 0.01}}",
        "spec.replicas.callTimeoutSeconds=6",
    )
    with RunningJob(tmp_path, assignments, HANGING) as job:
        assert job.wait() == 0
        summary = job.summary()
        assert summary["restarts"]["replica"] == 1
        assert summary["portionsRequeued"] >= 1
        assert not psutil.pid_exists(int((tmp_path / "hangs").read_text()))
        said = job.log("replica-0") + job.log("replica-1")
        assert "the task's code does not return" in said
        assert CALLS[place] in said
        assert place == "worker" or "counting.py:" in said
        job.assert_promises_held()
