"""The committed dashboards, alerts and list of metrics are what the code makes."""

from pathlib import Path

import pytest

from disttrain_monitoring import generated_files

ROOT = Path(__file__).parents[3]


def test_the_committed_files_are_current() -> None:
    assert generated_files.stale_files(ROOT) == []


def test_a_file_that_was_edited_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generated_files.main([str(tmp_path)]) == 0
    assert generated_files.main([str(tmp_path), "--check"]) == 0
    board = tmp_path / "charts" / "disttrain-operator" / "dashboards" / "job.json"
    board.write_text(board.read_text().replace("Loss", "loss"))

    assert generated_files.main([str(tmp_path), "--check"]) == 1

    assert (
        capsys.readouterr().err
        == f"{board}: not current; run `make generate` and commit the result\n"
    )
