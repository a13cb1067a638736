"""`disttrain run` and `resume` in a place where no run can be: a sentence and exit code 2."""

import errno
import os
from datetime import datetime, tzinfo
from pathlib import Path
from typing import NoReturn, Self

import pytest
from torch import nn

from builders.checkpointed_runs import a_run
from builders.jobs import SMALL
from disttrain.cli import main, run
from disttrain.launch import atomic_file
from disttrain.launch.run_folder import RunFolder
from disttrain.launcher import launcher
from disttrain.launcher.run import Run


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["disttrain", *words])
    try:
        return int(main.main())
    except SystemExit as end:
        return int(end.code or 0)


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(SMALL)
    return "job.yaml"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("job.yaml", "TMP/job.yaml is no folder; choose another one with --output"),
        ("job.yaml/run", "--output: TMP/job.yaml/run takes no files (Not a directory); choose"),
        ("/proc/x", "(No such file or directory); choose a folder that you may write"),
        ("x" * 300, "(File name too long); choose a folder that you may write"),
    ],
)
def test_an_output_that_can_be_no_folder_is_refused(
    manifest: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    output: str,
    said: str,
) -> None:
    assert ended(monkeypatch, "run", manifest, "--output", output) == 2
    message = capsys.readouterr().err.replace(str(Path.cwd()), "TMP")
    assert message.startswith("error: ")
    assert "make room" not in message
    assert said in message


@pytest.mark.parametrize("field", ["--output", "JOB.yaml"])
def test_a_folder_that_is_not_utf_8_is_refused_before_anything_is_made(
    manifest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], field: str
) -> None:
    folder = Path(os.fsdecode(b"\xff"))
    output = folder / "run" if field == "--output" else Path("run")
    if field == "JOB.yaml":
        folder.mkdir()
        manifest = str(Path(manifest).rename(folder / manifest))
    assert ended(monkeypatch, "run", manifest, "--output", str(output)) == 2
    assert f"error: {field}: the name of {Path.cwd()}/?" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    "command", ["resume", "status", "evaluate", "audit", "replay", "inspect", "export"]
)
def test_a_name_that_no_file_can_have_is_a_wrong_call(
    manifest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    del manifest
    name = f"./{'x' * 300}"
    arguments = (".", name) if command == "export" else (name,)
    assert ended(monkeypatch, command, *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "File name too long" in line


@pytest.mark.parametrize("lock", ["a folder", "a link to itself"])
def test_a_resume_of_a_folder_that_nobody_can_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lock: str
) -> None:
    run = RunFolder(a_run(tmp_path, "signs_held", nn.Linear(1, 1)))
    if lock == "a folder":
        run.lock_file.mkdir()
    else:
        run.lock_file.symlink_to(run.lock_file)
    assert ended(monkeypatch, "resume", str(run.path)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: DIR: {run.path} takes no files ({run.lock_file}: ")


def test_a_folder_for_all_runs_that_others_may_write_into_is_refused(
    manifest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("runs").mkdir()
    Path("runs").chmod(0o757)
    assert ended(monkeypatch, "run", manifest) == 2
    assert "error: everybody may write into runs; " in capsys.readouterr().err
    assert not list(Path("runs").iterdir())


def test_runs_of_the_same_second_get_folders_of_their_own(
    manifest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls(2026, 1, 31, 12, 5, 9, tzinfo=tz)

    def start(run: Run, *_: object) -> NoReturn:
        started.append(run.folder.path.name)
        raise SystemExit(7)

    started: list[str] = []
    monkeypatch.setattr(run, "datetime", Clock)
    monkeypatch.setattr(launcher, "run_job", start)
    assert [ended(monkeypatch, "run", manifest) for _ in range(3)] == [7, 7, 7]
    first = "digits-20260131-120509"
    assert started == [first, f"{first}-2", f"{first}-3"]


def test_checkpoints_where_no_folder_can_be_are_refused_before_anything_is_made(
    manifest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = f"spec.checkpoint.uri={Path.cwd()}/{manifest}/checkpoints"
    assert ended(monkeypatch, "run", manifest, "--output", "run", "--set", uri) == 2
    message = capsys.readouterr().err
    assert "error: spec.checkpoint.uri: " in message
    assert "takes no checkpoints (Not a directory)" in message
    assert not Path("run").exists()


def test_a_full_disk_is_told_before_anything_starts(
    manifest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(_path: Path, _content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_file, "replace", write)
    assert ended(monkeypatch, "run", manifest, "--output", "run") == 2
    assert "/run takes no files (No space left on device); make room" in capsys.readouterr().err


ON_FOLDERS = ("resume", "status", "audit", "replay", "inspect", "evaluate", "export")


@pytest.mark.parametrize("command", ON_FOLDERS)
def test_a_folder_where_there_is_no_run_is_a_wrong_call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    further = ["out"] if command == "export" else []
    assert ended(monkeypatch, command, str(tmp_path), *further) == 2
    lacks = "holds no checkpoint" if command in ON_FOLDERS[-3:] else "is no output folder of"
    assert lacks in capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "audit", "replay", "inspect", "evaluate"])
def test_a_run_that_has_not_begun_is_a_wrong_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "job.yaml").write_text(SMALL)
    assert ended(monkeypatch, command, str(tmp_path)) == 2


@pytest.mark.parametrize("command", ON_FOLDERS)
def test_a_folder_that_does_not_exist_is_called_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    further = ["out"] if command == "export" else []
    assert ended(monkeypatch, command, str(tmp_path / "nowhere"), *further) == 2
    assert "no such folder" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("command", ["audit", "replay"])
def test_a_run_that_ended_before_training_is_called_so(
    manifest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    del manifest
    assert ended(monkeypatch, command, ".") != 0
    assert "holds no run that has begun: it has no ledger/" in capsys.readouterr().err
