"""The output folder, its lock and its record."""

import fcntl
import os
import stat
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from disttrain.launch import outcome, run_folder
from disttrain.launch.errors import NotARunFolder, OutputFolderInUse, OutputFolderUnusable
from disttrain.launch.run_folder import RunFolder, RunRecord, default_folders


def a_record(launcher_pid: int = 1) -> RunRecord:
    return RunRecord(
        job_uid="one",
        task_folder=Path("/tasks"),
        launcher_pid=launcher_pid,
        sockets=Path("/tmp/s"),
        cores=2,
        processes={"replica-0": 7},
    )


def test_the_default_folders_have_the_jobs_name_and_the_time() -> None:
    found = default_folders("digits", datetime(2026, 1, 31, 12, 5, 9, tzinfo=UTC))
    assert [str(next(found)) for _ in range(3)] == [
        "runs/digits-20260131-120509",
        "runs/digits-20260131-120509-2",
        "runs/digits-20260131-120509-3",
    ]


def test_an_empty_folder_is_taken_and_a_full_one_is_not(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "new" / "run")
    folder.create()
    with pytest.raises(
        OutputFolderInUse, match=r"is not empty; choose another folder with --output$"
    ):
        folder.create()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(OutputFolderUnusable, match="is no folder; choose another one"):
        RunFolder(tmp_path / "run").create()
    assert (tmp_path / "run").read_text() == "mine"


def test_a_new_folder_and_its_parts_are_for_this_user_alone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    made = (folder.path, folder.logs, folder.lock_file.parent)
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3


def test_a_folder_that_everybody_may_write_into_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o757)
    with pytest.raises(OutputFolderUnusable, match=f"chmod o-w {tmp_path}"):
        RunFolder(tmp_path).create()
    with pytest.raises(OutputFolderUnusable):
        RunFolder(tmp_path).lock()
    assert not list(tmp_path.iterdir())


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    remedy = rf"belongs to another user \({owner}\), .* `chown {owner + 1} {tmp_path}`"
    with pytest.raises(OutputFolderUnusable, match=remedy):
        RunFolder(tmp_path).create()
    with pytest.raises(OutputFolderUnusable):
        RunFolder(tmp_path).lock()
    assert not list(tmp_path.iterdir())


def test_who_only_looks_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_folder._LOOK_SECONDS >= 0.1
    # However slow this machine is just now.
    monkeypatch.setattr(run_folder, "_LOOK_SECONDS", 10.0)
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.require_free()
    with folder.lock_file.open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        let_go = threading.Timer(0.05, fcntl.flock, (looked_at, fcntl.LOCK_UN))
        let_go.start()
        held = folder.lock()
        let_go.join()

    assert folder.is_held()
    os.close(held)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.lock_file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        folder.lock()
    assert not (tmp_path / "elsewhere").exists()


def test_one_launcher_holds_a_folder_at_a_time(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.prepare()
    held = folder.lock()
    with pytest.raises(OutputFolderInUse, match="still going on"):
        folder.lock()
    os.close(held)
    os.close(folder.lock())


def test_a_folder_in_use_names_who_uses_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    held = folder.claim()
    with pytest.raises(OutputFolderInUse, match=f"^a run is using {tmp_path}; choose another"):
        folder.create()
    folder.record.write_bytes(a_record(launcher_pid=71).to_json())
    in_use = f"^a run with pid 71 is using {tmp_path}; choose another folder with --output"
    with pytest.raises(OutputFolderInUse, match=in_use) as error:
        folder.create()
    assert "resume" not in str(error.value)
    with pytest.raises(OutputFolderInUse, match=r"still going on, with pid 71; stop it first"):
        folder.lock()
    os.close(held)
    with pytest.raises(OutputFolderInUse, match=r"is not empty; .*disttrain resume .*or delete it"):
        folder.create()


def test_a_folder_that_two_runs_found_empty_goes_to_the_first_to_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    held = folder.claim()
    monkeypatch.setattr(RunFolder, "create", RunFolder.prepare)
    with pytest.raises(OutputFolderInUse, match="another run has just begun"):
        folder.claim()
    folder.job.write_text("the first one's")
    os.close(held)
    with pytest.raises(OutputFolderInUse, match="another run has just begun"):
        folder.claim()
    os.close(folder.lock())


def test_a_folder_is_free_when_no_launcher_holds_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    held = folder.claim()
    with pytest.raises(OutputFolderInUse, match="still going on"):
        folder.require_free()
    os.close(held)
    folder.require_free()


def test_the_record_survives_its_file_and_a_torn_one_is_told(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    record = a_record()
    folder.record.write_bytes(record.to_json())
    assert folder.read_record() == record
    folder.record.write_bytes(folder.record.read_bytes()[:-20])
    with pytest.raises(NotARunFolder, match=r"run\.json is missing or damaged"):
        folder.read_record()


def test_a_task_lies_beside_its_manifest_or_where_the_run_began(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    assert run_folder.task_folder_of(run.job) == run.path
    tasks = tmp_path / "tasks"
    run.record.write_bytes(replace(a_record(), task_folder=tasks).to_json())
    assert run_folder.task_folder_of(run.job) == run.path, "it was taken to another machine"
    tasks.mkdir()
    assert run_folder.task_folder_of(run.job) == tasks
    assert run_folder.task_folder_of(run.path / "other.yaml") == run.path
    run.record.write_text("{}")
    assert run_folder.task_folder_of(run.job) == run.path, "it is no run's"


def test_a_failure_survives_its_file(tmp_path: Path) -> None:
    outcome.write_failure(tmp_path / "f", NotARunFolder("two\nlines"))
    failure = outcome.read_failure(tmp_path / "f")
    assert failure == outcome.Failure(kind="NotARunFolder", message="two\nlines")
    assert outcome.read_failure(tmp_path / "none") is None


def test_a_run_of_which_no_member_has_begun_can_be_audited(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "output")
    folder.prepare()
    folder.job.touch()
    assert folder.why_none(of_training=True) is None
