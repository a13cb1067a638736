"""Files that are added to: of this user alone, and no link is followed."""

import stat
from pathlib import Path

import pytest

from disttrain.coordinator.process.reporting import RunFiles
from disttrain.telemetry import logs


def test_a_new_file_is_for_this_user_alone_and_is_added_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for text in ("one ", "two"):
        with open(path, "a", opener=logs.open_to_append) as stream:
            stream.write(text)
    assert path.read_text() == "one two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        logs.open_to_append(tmp_path / "log")
    assert not (tmp_path / "victim").exists()


def test_the_figures_of_a_run_are_for_this_user_alone(tmp_path: Path) -> None:
    RunFiles(tmp_path).add_metrics({"loss": 1.0})
    assert stat.S_IMODE((tmp_path / "metrics.jsonl").stat().st_mode) == 0o600
