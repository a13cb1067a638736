"""`disttrain join` and `run --joinable-at` where nobody can join: a sentence, nothing is left."""

import os
from io import StringIO
from pathlib import Path

import pytest

from builders.jobs import SMALL
from disttrain.cli import main
from disttrain.launch import invitation
from disttrain.launch.exit_code import ExitCode

TOKEN = str(invitation.new_token("ab" * 32))


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
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    where = ["--task-folder", str(tmp_path / "tasks"), "--output", str(output)]

    code = ended(monkeypatch, "join", "127.0.0.1:1", "--token-file", str(file), *where)

    told = capsys.readouterr().err
    assert code == ExitCode.USAGE, told
    assert "gone.py cannot be read" in " ".join(told.split())
    assert token not in told
    assert not output.exists()


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("words", "variable", "standard_input"),
    [
        (["--token", TOKEN], None, StringIO()),
        (["--token-file", "file"], None, StringIO()),
        (["--token-file", "-"], None, StringIO(f"{TOKEN}\n")),
        ([], TOKEN, StringIO()),
        ([], None, StringIO(f"{TOKEN}\n")),
        ([], None, Terminal()),
    ],
    ids=["argument", "file", "standard input as a file", "variable", "standard input", "prompt"],
)
def test_a_token_is_taken_from_where_it_is(
    words: list[str],
    variable: str | None,
    standard_input: StringIO,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text(TOKEN)
    monkeypatch.chdir(tmp_path)
    if variable is not None:
        monkeypatch.setenv("DISTTRAIN_TOKEN", variable)
    monkeypatch.setattr("sys.stdin", standard_input)
    monkeypatch.setattr("typer.prompt", lambda *_, **more: TOKEN if more["hide_input"] else "")

    code = ended(monkeypatch, "join", "127.0.0.1:1", *words)

    told = capsys.readouterr().err
    assert code == ExitCode.USAGE
    assert "ADDRESS: no answer from 127.0.0.1:1" in told
    assert TOKEN not in told
    assert "DISTTRAIN_TOKEN" not in os.environ


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--token", "none"], "--token: this is no token of `disttrain invite`; copy all of the"),
        (["--token-file", "absent"], "--token-file: absent cannot be read (No such file or"),
        (["--token-file", "image"], "--token-file: image cannot be read (it is no text)"),
        (["--token", TOKEN, "--token-file", "-"], "--token and --token-file are both given"),
        ([], "token: this is no token of `disttrain invite`"),
    ],
)
def test_where_a_token_is_not_is_named(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "image").write_bytes(b"\xff\xfe\x00")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", StringIO())

    assert ended(monkeypatch, "join", "127.0.0.1:1", *words) == ExitCode.USAGE
    assert said in " ".join(capsys.readouterr().err.split())
