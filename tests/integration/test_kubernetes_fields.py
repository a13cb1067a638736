"""A manifest for a cluster on one machine: it runs, and says what means nothing there."""

from pathlib import Path

import pytest

from builders.runs import RunningJob

pytestmark = pytest.mark.landing

FOR_A_CLUSTER = ("spec.image=registry.example/runtime:1", "spec.ttlSecondsAfterFinished=60")


def test_fields_without_a_meaning_are_named_in_one_line(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [*FOR_A_CLUSTER, "spec.stop.steps=2"]) as job:
        assert job.wait() == 0
        said = [line for line in job.printed().splitlines() if "mean nothing" in line]
    assert said == [
        "these fields mean nothing on one machine: spec.image, spec.ttlSecondsAfterFinished"
    ]
