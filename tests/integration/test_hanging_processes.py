"""A process that lives and does nothing is ended by whoever started it, and the job completes."""

import signal
from pathlib import Path

import pytest

from builders.runs import RunningJob

PATIENCE = "spec.coordinator={heartbeatSeconds: 0.2, leaseSeconds: 2, memberTimeoutSeconds: 6}"


@pytest.mark.parametrize("name", ["shard-1", "coordinator", "replica-0"])
def test_a_process_that_is_stopped_for_ever_is_killed_and_started_again(
    tmp_path: Path, name: str
) -> None:
    gate, role = tmp_path / "gate", name.partition("-")[0]
    with RunningJob(tmp_path, [f"spec.task.arguments={{gate: {gate}}}", PATIENCE]) as job:
        job.wait_until(lambda status: status["checkpoints"] >= 1 and status["liveReplicas"] == 2)
        stopped = job.signal(name, signal.SIGSTOP)
        job.wait_until(lambda _: f"{name} hangs (silent for" in job.printed())
        job.wait_until(lambda status: status["restarts"][role] >= 1)
        assert job.pid(name) != stopped
        gate.touch()
        assert job.wait() == 0

        job.assert_promises_held()
