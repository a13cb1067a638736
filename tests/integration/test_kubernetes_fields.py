"""A manifest for a cluster on one machine: it runs, and says what means nothing there."""

from pathlib import Path

import pytest

from builders.commands import disttrain
from builders.runs import COUNTING, RunningJob

pytestmark = pytest.mark.landing

FOR_A_CLUSTER = ("spec.image=registry.example/runtime:1", "spec.ttlSecondsAfterFinished=60")


def test_fields_without_a_meaning_are_named_in_one_line(tmp_path: Path) -> None:
    with RunningJob(tmp_path, [*FOR_A_CLUSTER, "spec.stop.steps=2"]) as job:
        assert job.wait() == 0
        said = [line for line in job.printed().splitlines() if "mean nothing" in line]
    assert said == [
        "these fields mean nothing on one machine: spec.image, spec.ttlSecondsAfterFinished"
    ]


def test_what_is_not_there_yet_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(COUNTING)
    parts = ("--set", "spec.replicas.partitions=2", "--output", "out")
    code, _, said = disttrain("run", "job.yaml", *parts, folder=tmp_path)
    assert code == 2
    assert "spec.replicas.partitions: model parallelism is not supported yet" in said
    assert not (tmp_path / "out").exists()
