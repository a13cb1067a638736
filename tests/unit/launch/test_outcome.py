"""How a run ended, as its summary says it."""

import errno
from pathlib import Path

import pytest

from disttrain.launch import atomic_file, outcome
from disttrain.launch.outcome import Outcome, Result


def test_what_was_written_is_read(tmp_path: Path) -> None:
    ended = Outcome(result=Result.STOPPED, reason="Interrupted", message="two\nlines")
    outcome.write_summary(tmp_path / "summary.json", ended)
    assert outcome.read_summary(tmp_path / "summary.json") == ended


def test_a_full_disk_takes_no_summary_and_ends_no_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_file, "replace", full)
    outcome.write_summary(tmp_path / "summary.json", Outcome(result=Result.FAILED))
    assert outcome.read_summary(tmp_path / "summary.json") is None
