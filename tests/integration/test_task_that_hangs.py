"""A replica whose task does not return gives up its portions and starts again."""

from pathlib import Path

import psutil
import pytest

from builders.runs import COUNTING, RunningJob

pytestmark = pytest.mark.landing

HANGING = COUNTING.replace("counting:Counting", "counting:Hanging")


HANGS = "the task's code does not return"
SAID = {
    "loss": (HANGS, "call=Hanging.loss()", "counting.py:"),
    "sample": (HANGS, "call=Stuck.__getitem__(", "counting.py:"),
    "worker": (HANGS, 'call="reading a batch"'),
    "lock": ("Timeout (", "counting.py"),
}


@pytest.mark.parametrize("place", SAID)
def test_a_replica_that_hangs_is_started_again_and_every_sample_counts(
    tmp_path: Path, place: str
) -> None:
    # One that is silent has its work done by others, and is not waited for: here is no other. Where
    # there is another it must not be done with everything else before the new incarnation joins.
    replicas, step_seconds = (1, 0.01) if place == "lock" else (2, 0.04)
    task = f"{{place: {place}, marker: {tmp_path}/hangs, step_seconds: {step_seconds}}}"
    assignments = (
        f"spec.task.arguments={task}",
        "spec.replicas.callTimeoutSeconds=6",
        f"spec.replicas.count={replicas}",
    )
    with RunningJob(tmp_path, assignments, HANGING) as job:
        assert job.wait() == 0
        summary = job.summary()
        assert summary["restarts"]["replica"] == 1
        assert summary["portionsRequeued"] >= 1
        assert not psutil.pid_exists(int((tmp_path / "hangs").read_text()))
        said = "".join(log.read_text() for log in job.output.glob("logs/replica-*.log"))
        assert [words for words in SAID[place] if words not in said] == []
        job.assert_promises_held()
