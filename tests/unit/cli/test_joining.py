"""`disttrain join` and `run --joinable-at` where nobody can join: a sentence, nothing is left."""

from pathlib import Path

import pytest

from builders.jobs import SMALL
from disttrain.cli import main
from disttrain.launch import invitation
from disttrain.launch.exit_code import ExitCode


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["disttrain", *words])
    try:
        return int(main.main())
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])  # noqa: S104 - It is what is refused.
def test_an_address_that_joiners_cannot_reach_is_refused_before_anything_is_made(
    host: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(SMALL)
    words = ["--set", "spec.transport=tcp", "--output", str(tmp_path / "run")]

    code = ended(monkeypatch, "run", str(job), *words, "--joinable-at", f"{host}:7000")

    assert code == ExitCode.USAGE
    told = " ".join(capsys.readouterr().err.split())
    assert "--joinable-at: nobody can connect to" in told
    assert not (tmp_path / "run").exists()


def test_a_joiner_that_asked_nobody_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/gone.py").symlink_to(tmp_path / "nowhere.py")
    token, output = str(invitation.new_token("ab" * 32)), tmp_path / "output"
    where = ["--task-folder", str(tmp_path / "tasks"), "--output", str(output)]

    code = ended(monkeypatch, "join", "127.0.0.1:1", "--token", token, *where)

    told = capsys.readouterr().err
    assert code == ExitCode.USAGE, told
    assert "gone.py cannot be read" in " ".join(told.split())
    assert token not in told
    assert not output.exists()
