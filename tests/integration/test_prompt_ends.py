"""Once a job has ended nothing of it is started again."""

from pathlib import Path

import pytest

from builders.runs import RunningJob

pytestmark = pytest.mark.landing

FAILS_LATE = (
    "spec.task.entrypoint=counting:FailsLate",
    "spec.task.arguments={step_seconds: 0.01}",
)


def test_an_error_of_the_task_in_training_ends_the_job_at_once(tmp_path: Path) -> None:
    with RunningJob(tmp_path, FAILS_LATE) as job:
        assert job.wait() == 1
        launched = job.log("launcher")
        for name in ("coordinator", "shard-0", "shard-1", "replica-0", "replica-1"):
            assert launched.count(f"started process={name} ") == 1
        assert job.printed().count("failed · ") == 1
        job.assert_promises_held()


DIVERGES = (
    "spec.task.arguments={samples: 100000, nan_from_sample: 200}",
    "spec.failurePolicy.maxNonFiniteGradients=3",
    # Each step waits for its push's answer: the end comes while somebody waits for shards.
    "spec.strategy.downpour.maxInFlight=0",
)


def test_replicas_that_wait_for_shards_hear_that_the_job_has_diverged(tmp_path: Path) -> None:
    with RunningJob(tmp_path, DIVERGES) as job:
        assert job.wait() == 1
        assert job.summary()["reason"] == "Diverged"
        names = [member["name"] for member in job.status()["members"]]
        replicas = [name for name in names if name.startswith("replica-")]
        assert replicas
        for name in replicas:
            ended = f"ended process={name} pid={job.pid(name)} exit="
            assert f'{ended}"exit code 0"' in job.log("launcher"), "killed after some seconds"
        job.assert_promises_held()
