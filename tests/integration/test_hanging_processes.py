"""A process that lives and does nothing is ended by whoever started it, and the job completes."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from builders.launches import wait_until
from builders.runs import RunningJob

PATIENCE = "spec.coordinator={heartbeatSeconds: 0.2, leaseSeconds: 2, memberTimeoutSeconds: 6}"


@pytest.mark.parametrize(
    "name", ["shard-1", pytest.param("coordinator", marks=pytest.mark.landing), "replica-0"]
)
def test_a_process_that_is_stopped_for_ever_is_killed_and_started_again(
    tmp_path: Path, name: str
) -> None:
    gate, role = tmp_path / "gate", name.partition("-")[0]
    with RunningJob(tmp_path, [f"spec.task.arguments={{gate: {gate}}}", PATIENCE]) as job:
        job.wait_until(lambda status: status["checkpoints"] >= 1 and status["liveReplicas"] == 2)
        # Who has not said anything yet may begin for long, and is not missed.
        wait_until(lambda: "the coordinator answers" in job.log("launcher"), "the launcher hears")
        stopped = job.signal(name, signal.SIGSTOP)
        job.wait_until(lambda _: f"{name} hangs (silent for" in job.printed())
        job.wait_until(lambda status: status["restarts"][role] >= 1)
        assert job.pid(name) != stopped
        gate.touch()
        assert job.wait() == 0

        job.assert_promises_held()


class ImpatientJob(RunningJob):
    """One whose launcher gives members less time to begin than users have to."""

    def _start(self, command: Sequence[str]) -> None:
        program = (
            "import sys; from disttrain.cli import main; "
            "from disttrain.launcher import fleet, hangs; "
            "hangs.IDLE_SECONDS = dict.fromkeys(hangs.IDLE_SECONDS, 10.0); "
            "hangs.ANSWER_SECONDS = 2.0; fleet.LONG_IMPORT_SECONDS = 1.0; sys.exit(main.main())"
        )
        self._printed = self.output.parent / "printed"
        with self._printed.open("a") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, *command], stdout=printed, stderr=printed
            )

    def fork_server(self) -> psutil.Process:
        """The process that forks shards and replicas."""
        children = psutil.Process(self._process.pid).children()
        return next(each for each in children if each.name() == "dt:fork-server")


@pytest.mark.nightly
@pytest.mark.landing
def test_a_shard_that_is_stopped_for_ever_before_it_has_joined_is_started_again(
    tmp_path: Path,
) -> None:
    with ImpatientJob(tmp_path, [PATIENCE]) as job:
        wait_until(lambda: bool(_pid(job, "coordinator")), "the coordinator has begun")
        # So that nobody has joined before the shard is stopped.
        job.signal("coordinator", signal.SIGSTOP)
        wait_until(lambda: bool(_pid(job, "shard-1")), "the shard has begun")
        stopped = job.signal("shard-1", signal.SIGSTOP)
        job.signal("coordinator", signal.SIGCONT)
        said = "shard-1 hangs (has not joined, and did nothing for"
        wait_until(lambda: said in job.printed(), "it is killed")
        assert job.wait() == 0, job.printed()

        assert job.pid("shard-1") != stopped
        job.assert_promises_held()


def test_a_fork_server_that_is_stopped_for_ever_is_killed_when_it_is_needed(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    with ImpatientJob(tmp_path, [f"spec.task.arguments={{gate: {gate}}}"]) as job:
        job.wait_until(lambda status: status["checkpoints"] >= 1 and status["liveReplicas"] == 2)
        server = job.fork_server()
        server.send_signal(signal.SIGSTOP)
        killed = job.signal("shard-1", signal.SIGKILL)
        wait_until(lambda: "fork-server hangs (owes an answer" in job.printed(), "it is killed")
        wait_until(lambda: job.pid("shard-1") != killed, "the shard is started again")
        gate.touch()
        assert job.wait() == 0, job.printed()

        assert not server.is_running()
        job.assert_promises_held()


@pytest.mark.landing
def test_a_long_import_of_the_task_is_told(tmp_path: Path) -> None:
    with ImpatientJob(tmp_path, ["spec.task.entrypoint=slow_import:Counting"]) as job:
        assert job.wait() == 0, job.printed()

        told = "importing 'slow_import' has not returned for 1 s: no replica starts before it has"
        assert job.printed().count(told) == 1


def _pid(job: RunningJob, name: str) -> int:
    try:
        return job.pid(name)
    except KeyError:
        return 0
