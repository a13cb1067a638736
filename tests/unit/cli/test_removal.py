"""`disttrain remove`: whom it refuses to take away, and what it leaves for the coordinator."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.jobs import a_job
from disttrain.cli import main
from disttrain.coordinator.protocol import leave_notices
from disttrain.coordinator.protocol import notices as notices_
from disttrain.job import defaults
from disttrain.launch import config as launch_config
from disttrain.launch.run_folder import RunFolder, RunRecord
from disttrain.launcher import plan
from disttrain.launcher.plan import Place

PLACE = "joiner-a1"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    """A run of two replicas that trains, as far as its folder tells, with one that joined."""
    folder, job = RunFolder(tmp_path / "run"), a_job("spec.replicas.count=2")
    folder.create()
    folder.job.write_text(defaults.written_out_text(job))
    record = RunRecord(
        job_uid="uid", task_folder=tmp_path, launcher_pid=1, sockets=tmp_path, cores=2, processes={}
    )
    folder.record.write_bytes(record.to_json())
    place = Place(
        run_folder=folder.path,
        task_folder=tmp_path,
        job_uid="uid",
        sockets=tmp_path,
        coordinator_port=0,
        cores=2,
    )
    launch_config.write(folder.config("coordinator"), plan.plan(job, place)["coordinator"])
    tell(folder)
    held = folder.lock()
    yield folder
    os.close(held)


def tell(folder: RunFolder, *removed: str) -> None:
    joiner = {"name": "replica-2", "incarnation": 3, "state": "live", "place": PLACE}
    own = [{"name": name, "incarnation": 1, "state": "live"} for name in ("shard-0", "replica-0")]
    loop = {"name": "replica-9", "incarnation": 1, "state": "live"}
    members = [*own, joiner, loop]
    folder.status.write_text(
        json.dumps({"phase": "Running", "members": members, "removed": removed})
    )


def ended(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["disttrain", "remove", *map(str, words)])
    try:
        return int(main.main())
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("replica-0", "REPLICA: replica-0 is the job's own; remove one that has joined"),
        ("replica-9", "REPLICA: replica-9 has not joined this run; it is one of replica-2"),
        ("shard-0", "REPLICA: shard-0 has not joined this run; it is one of replica-2"),
        ("anybody", "REPLICA: anybody has not joined this run; it is one of replica-2"),
    ],
)
def test_whoever_has_not_joined_is_not_removed(
    name: str,
    said: str,
    run: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(monkeypatch, run.path, name) == 2
    assert said in capsys.readouterr().err
    assert leave_notices.in_folder(run.path).read() == {}


def test_of_a_run_that_is_over_nobody_is_removed(
    tmp_path: Path,
    run: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(RunFolder, "is_held", lambda _: False)
    assert ended(monkeypatch, run.path, "replica-2") == 2
    assert "is no run that trains now" in capsys.readouterr().err
    assert ended(monkeypatch, tmp_path / "none", "replica-2") == 2


def test_a_joiner_is_gone_when_the_coordinator_says_so(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notices, said = leave_notices.in_folder(run.path), list[notices_.Notice]()

    def coordinator() -> None:
        while not (found := notices.read()):
            pass
        said.extend(found.values())
        tell(run, PLACE)

    thread = threading.Thread(target=coordinator)
    thread.start()
    code = ended(monkeypatch, run.path, "replica-2")
    thread.join()

    assert code == 0
    assert said == [notices_.Remove(place=PLACE)]
    assert "replica-2 is removed" in capsys.readouterr().out
