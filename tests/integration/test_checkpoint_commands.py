"""The commands for checkpoints on what a real run has written."""

import json
from pathlib import Path
from typing import Any

import pytest

from builders import commands
from builders.runs import RunningJob


def disttrain(*arguments: str | Path) -> str:
    """What the command prints; it must succeed."""
    answer = commands.disttrain(*arguments)
    assert answer.code == 0, answer.err
    return answer.out


@pytest.fixture(name="output", scope="module")
def _output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that is complete."""
    with RunningJob(tmp_path_factory.mktemp("run")) as job:
        assert job.wait() == 0, job.printed()
    return job.output


def _json(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_the_last_checkpoint_exports_to_the_runs_own_model(output: Path, tmp_path: Path) -> None:
    disttrain("export", output, tmp_path / "model.safetensors")
    written = (tmp_path / "model.safetensors").read_bytes()
    assert written == (output / "model.safetensors").read_bytes()


def test_the_last_checkpoint_holds_every_sample(output: Path) -> None:
    found = json.loads(disttrain("inspect", output, "--json"))
    summary = _json(output / "summary.json")
    assert found["samples"] == summary["samples"]
    assert found["job"] == "counting"
    assert [shard["index"] for shard in found["shards"]] == [0, 1]
    assert all(shard["version"] > 0 for shard in found["shards"])
    assert [table["name"] for table in found["shards"][0]["tables"]] == ["deliveries"]


def test_the_last_checkpoint_evaluates_with_the_runs_own_task(output: Path) -> None:
    lines = disttrain("evaluate", output).splitlines()
    assert lines[0].startswith(f"checkpoint {output}/checkpoints/")
    assert lines[1].startswith("samples ")
    assert lines[2].startswith("loss ")
