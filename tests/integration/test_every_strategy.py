"""Digits, speech and a text with every strategy: one process of each role dies."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import held_jobs
from builders.held_jobs import HeldJob
from builders.runs import RunningJob

QUICK: dict[str, Any] = {
    "coordinator": {"heartbeatSeconds": 0.2, "leaseSeconds": 3, "memberTimeoutSeconds": 20},
    "failurePolicy": {"restartBackoff": {"initialSeconds": 0.1, "maxSeconds": 1}},
}

LANDING = {
    ("digits", "downpour"),
    ("digits", "sandblaster"),
    ("digits", "compensation"),
    ("language", "decoupled-diloco"),
    ("language", "local-steps"),
    ("speech", "prediction"),
}
"""Each example and each strategy."""


@pytest.mark.parametrize(
    ("example", "strategy"),
    [
        pytest.param(*each, marks=() if each in LANDING else pytest.mark.nightly)
        for each in held_jobs.ALL
    ],
)
def test_every_role_is_killed_and_the_audit_passes(
    tmp_path: Path, example: str, strategy: str
) -> None:
    held, gate = HeldJob(example, strategy), tmp_path / "gate"
    manifest = held.manifest(str(gate))
    manifest["spec"] |= QUICK
    with RunningJob(laid_out(tmp_path), manifest=yaml.safe_dump(manifest)) as job:
        job.wait_until(held.has_learned_something)
        for name in ("replica-0", "shard-1", "coordinator"):
            kill(job, name)
        gate.touch()
        assert job.wait() == 0

        summary = job.summary()
        assert summary["phase"] == "Complete"
        assert summary["restarts"] == {"coordinator": 1, "shard": 1, "replica": 1}
        assert summary["finalMeasures"]["accuracy"] > 0
        job.assert_promises_held()


def laid_out(folder: Path) -> Path:
    """A folder with the examples' code, and their data beside it."""
    place = folder / "task"
    place.mkdir()
    for each in held_jobs.CODE:
        shutil.copy(each, place)
    (folder / "data").symlink_to(held_jobs.EXAMPLES / "data")
    return place


def kill(job: RunningJob, name: str) -> None:
    """Return when its next incarnation runs, and all are members again."""
    before = job.kill(name)
    job.wait_until(lambda status: job.pid(name) != before and status.get("liveReplicas") == 2)
