"""Ctrl-C when no checkpoint, no summary and soon no journal can be written.

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
        assert job.wait(60) == 130
        assert job.summary()["phase"] == "Stopped"
