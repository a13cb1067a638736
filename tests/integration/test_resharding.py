"""A run that was stopped, or killed, goes on with another number of shards."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from builders.runs import RunningJob, set_field, set_shards

pytestmark = pytest.mark.landing

SAMPLES = 1024
EPOCHS = 2
PUSHES = EPOCHS * SAMPLES / 8
SLOW = "spec.task.arguments={step_seconds: 0.01}"
SLOWER = "spec.task.arguments={step_seconds: 0.03}"


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_a_stopped_run_goes_on_with_another_number_of_shards(
    tmp_path: Path, before: int, after: int
) -> None:
    with RunningJob(tmp_path, [SLOWER, f"spec.parameterServer.shards={before}"]) as job:
        job.wait_until(lambda status: status["samples"] >= SAMPLES // 2)
        job.interrupt()
        assert job.wait() == 130

    set_shards(job.output, after)
    set_field(job.output, "task.arguments", {})
    with RunningJob.resumed(job.output) as job:
        assert job.wait() == 0

        summary = job.summary()
        trained = load_file(job.output / "model.safetensors")
        assert (summary["phase"], summary["samplesRepeated"]) == ("Complete", 0)
        assert (summary["updatesLost"], summary["updatesLostBySender"]) == (0, {})
        assert trained["counts"].eq(EPOCHS).all()
        assert trained["first_updates"].eq(PUSHES).all()
        assert trained["last_updates"].eq(PUSHES).all()
        job.assert_promises_held()


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)])
def test_a_killed_run_goes_on_with_another_number_of_shards(
    tmp_path: Path, before: int, after: int
) -> None:
    often = "spec.checkpoint.everySeconds=0.5"
    with RunningJob(tmp_path, [SLOW, often, f"spec.parameterServer.shards={before}"]) as job:
        job.wait_until(lambda status: status["checkpoints"] >= 2)
        job.kill_launcher()

    set_shards(job.output, after)
    with RunningJob.resumed(job.output) as job:
        assert job.wait() == 0

        trained = load_file(job.output / "model.safetensors")
        assert trained["counts"].ge(EPOCHS).all()
        job.assert_promises_held()
