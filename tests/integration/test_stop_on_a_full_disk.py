"""What a job does when no checkpoint, no summary and soon no journal can be written.

What the disk kept out of the ledgers differs from run to run, and `disttrain audit` fails with it.
"""

from pathlib import Path

import pytest

from builders import small_disk
from builders.runs import RunningJob

pytestmark = pytest.mark.landing

SLOW_AND_LONG = ("spec.stop.epochs=100000", "spec.task.arguments={step_seconds: 0.01}")


@pytest.mark.parametrize("is_emptied", [True, False])
def test_an_interrupt_ends_the_job_as_stopped(tmp_path: Path, *, is_emptied: bool) -> None:
    with (
        small_disk.mounted(tmp_path / "disk") as disk,
        RunningJob(disk, SLOW_AND_LONG) as job,
    ):
        job.wait_until(lambda status: status.get("samples", 0) > 100)
        job.wait_until(lambda status: status["checkpoint"] is not None)
        small_disk.fill(disk / "ballast")
        job.interrupt()
        if is_emptied:
            (disk / "ballast").unlink()
        assert job.wait() == 130
        assert job.summary()["phase"] == "Stopped"


LARGE = (
    "spec.task.arguments={step_seconds: 0.01, samples: 100000}",
    "spec.stop.epochs=100000",
    "spec.checkpoint.everySeconds=1",
)


def test_a_job_trains_on_and_says_what_is_not_saved_until_it_is(tmp_path: Path) -> None:
    with small_disk.mounted(tmp_path / "disk") as disk, RunningJob(disk, LARGE) as job:
        job.wait_until(lambda status: (status["checkpoint"] or 0) > 1)
        small_disk.fill(disk / "ballast")
        told = job.wait_until(lambda status: "warning" in status["training"])
        warning = told["training"]["warning"]
        assert f"nothing since checkpoint {told['checkpoint']} is saved: {disk}" in warning
        # Too little for a checkpoint, whose attempts take it and give it back.
        with (disk / "ballast").open("r+b") as ballast:
            ballast.truncate(ballast.seek(0, 2) - 2**17)
        later = job.wait_until(
            lambda status: status["checkpointFailures"] > told["checkpointFailures"] + 2
        )
        assert later["samples"] > told["samples"]
        assert "No space left on device; make room for its " in later["training"]["warning"]
        assert job.printed().count("is full: nothing is saved until it has room") == 1
        assert "has room again" not in job.printed()
        (disk / "ballast").unlink()
        job.wait_until(lambda status: "warning" not in status["training"])
        job.wait_until(lambda _: "has room again" in job.printed())
        job.interrupt()
        assert job.wait() == 130
