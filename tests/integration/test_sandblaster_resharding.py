"""A job with a batch method goes on from its checkpoint, with the curvature that it had."""

from pathlib import Path

import pytest

from builders import batch_jobs
from builders.batch_jobs import BATCH_JOB
from builders.runs import RunningJob, set_shards

pytestmark = pytest.mark.landing

SAMPLES = 240
SLOW = "spec.task.arguments={portion_seconds: 0.01}"


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_a_stopped_job_goes_on_with_another_number_of_shards(
    tmp_path: Path, before: int, after: int
) -> None:
    with RunningJob(tmp_path, [SLOW, f"spec.parameterServer.shards={before}"], BATCH_JOB) as job:
        job.wait_until(lambda status: status["samples"] >= 8 * SAMPLES)
        job.interrupt()
        assert job.wait() == 130

    set_shards(job.output, after)
    with RunningJob.resumed(job.output) as job:
        assert job.wait() == 0

        serial = batch_jobs.serial_iterates()
        found = batch_jobs.flat(batch_jobs.exported(job.output))
        assert job.summary()["reason"] == "Converged"
        assert job.summary()["sandblaster"]["iteration"] == len(serial) - 1
        assert batch_jobs.distance(found, serial[-1]) < 1e-9
        job.assert_promises_held()
