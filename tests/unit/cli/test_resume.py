"""`disttrain resume`: what it refuses before anything starts."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

from builders.checkpointed_runs import a_run, checkpoint_of
from builders.checkpoints import a_checkpoint, flip_bit
from builders.joiners import free_ports
from builders.runs import set_field
from disttrain.checkpoint import names, reading
from disttrain.cli import checkpoint_folder, main
from disttrain.job import manifest_file
from disttrain.job.location import Location
from disttrain.launch.run_folder import RunFolder
from disttrain.launcher import launcher
from disttrain.launcher.run import Run


@pytest.fixture(name="started")
def _started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Runs that were started, which end at once."""
    seen: list[object] = []

    def start(run: object, *_: object) -> object:
        seen.append(run)
        raise SystemExit(7)

    monkeypatch.setattr(launcher, "run_job", start)
    return seen


def resumed(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["disttrain", "resume", str(folder), *words])
    try:
        return int(main.main())
    except SystemExit as end:
        return int(end.code or 0)


def _flip(checkpoint: Path) -> None:
    flip_bit(checkpoint / names.part_file(1), -1)


def _truncate(checkpoint: Path) -> None:
    file = checkpoint / names.part_file(1)
    file.write_bytes(file.read_bytes()[:-1])


def _halve(checkpoint: Path) -> None:
    (checkpoint / names.MANIFEST).unlink()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_flip, "part-00001.safetensors: its hash is"),
        (_truncate, "part-00001.safetensors: it has"),
        (_halve, "00000002: it has no manifest.json: it was not written to its end"),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_the_previous_one_offered(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: list[object],
    damage: Callable[[Path], None],
    said: str,
) -> None:
    run = a_run(tmp_path, "signs_resumed", nn.Linear(1, 1))
    damage(checkpoint_of(run / "checkpoints", nn.Linear(1, 1), number=2).path)
    assert resumed(monkeypatch, run) == 1
    message = capsys.readouterr().err
    assert said in message
    assert f"the one before it is whole: {run}/checkpoints/00000001" in message
    assert started == []


def test_a_whole_checkpoint_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[object]
) -> None:
    run = a_run(tmp_path, "signs_resumed", nn.Linear(1, 1))
    assert resumed(monkeypatch, run) == 7
    assert len(started) == 1


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(75.0, ", made 1 min 15 s before the run's end"), (None, "")],
)
def test_it_is_said_how_far_back_a_run_goes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: list[object],
    seconds: float | None,
    said: str,
) -> None:
    run = a_run(tmp_path, "signs_resumed", nn.Linear(1, 1))
    if seconds is not None:
        (run / "status.json").write_text("{}")
        made = reading.read(run / "checkpoints" / "00000001").manifest.created.timestamp()
        os.utime(run / "status.json", (made + seconds, made + seconds))
    assert resumed(monkeypatch, run) == 7
    told = capsys.readouterr().out.splitlines()[0]
    assert told == f"goes on from the checkpoint at 4,096 samples{said}"
    assert len(started) == 1


def test_another_optimizer_is_refused_by_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: list[object],
) -> None:
    run = a_run(tmp_path, "signs_resumed", nn.Linear(1, 1))
    manifest = run / "job.yaml"
    manifest.write_text(manifest.read_text().replace("adagrad:", "sgd:"))

    assert resumed(monkeypatch, run) == 2
    said = capsys.readouterr().err
    assert "spec.strategy.downpour.optimizer was adagrad and is sgd" in said
    assert "Set adagrad, or begin a new run" in said
    assert started == []


@pytest.mark.parametrize(
    ("staleness", "said"),
    [
        ({"delayCompensation": {"adaptive": {}}}, "staleness.delayCompensation.adaptive"),
        ({"predict": {}}, "staleness.predict"),
        (
            {"predictAndCompensate": {"adaptive": {}}},
            "staleness.predictAndCompensate.adaptive",
        ),
    ],
)
def test_an_optimizer_that_something_changes_is_refused_in_the_manifests_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: list[object],
    staleness: dict[str, object],
    said: str,
) -> None:
    run = a_run(tmp_path, "signs_resumed", nn.Linear(1, 1))
    rule = {"momentum": {"learningRate": 0.1}}
    set_field(run, "strategy.downpour", {"optimizer": rule, "staleness": staleness})

    assert resumed(monkeypatch, run) == 2
    assert f"was adagrad and is momentum with {said}, which" in capsys.readouterr().err
    assert started == []


def test_a_run_that_nobody_could_join_is_joinable_once_it_is_resumed_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[object]
) -> None:
    run, port = RunFolder(a_run(tmp_path, "signs_resumed", nn.Linear(1, 1))), free_ports()
    set_field(run.path, "transport", "tcp")

    assert resumed(monkeypatch, run.path, "--joinable-at", f"127.0.0.1:{port}") == 7

    reach = run.read_record().reach
    assert reach is not None
    assert reach.address == f"tcp://127.0.0.1:{port}"
    (it,) = started
    assert isinstance(it, Run)
    assert it.place.reach == reach


def test_a_run_whose_transport_is_this_machines_alone_is_not_resumed_to_be_joined(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: list[object],
) -> None:
    run = a_run(tmp_path, "signs_resumed", nn.Linear(1, 1))
    before = contents(run)

    code = resumed(monkeypatch, run, "--joinable-at", f"127.0.0.1:{free_ports()}")

    assert code == 2
    assert "--joinable-at: spec.transport must be tcp" in capsys.readouterr().err
    assert {path: text for path, text in contents(run).items() if path in before} == before
    assert started == []


COMPLETE = {
    "phase": "Complete", "reason": "Epochs", "epochs": 1, "samples": 1797, "seconds": 12.4,
    "finalMeasures": {"accuracy": 0.97}, "staleness": {"p50": 2, "p99": 7},
}  # fmt: skip


def a_complete_run(folder: Path) -> Path:
    run = a_run(folder, "signs_resumed", nn.Linear(1, 1))
    (run / "summary.json").write_text(json.dumps(COMPLETE))
    return run


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_complete_run_is_told_and_left_as_it_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: list[object],
) -> None:
    run = a_complete_run(tmp_path)
    before = contents(run)
    assert resumed(monkeypatch, run) == 0
    assert capsys.readouterr().out == (
        "digits is complete (Epochs): 1 epoch, 1,797 samples in 12 s, accuracy 0.97, "
        f"staleness p50 2 p99 7 updates. The model is {run}/model.safetensors. To train longer, "
        f"ask for more by spec.stop.epochs: disttrain resume {run} --set PATH=VALUE\n"
    )
    assert (contents(run), started) == (before, [])


def test_a_complete_run_goes_on_when_its_manifest_asks_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[object]
) -> None:
    run = a_complete_run(tmp_path)
    set_field(run, "stop.epochs", 2)
    assert resumed(monkeypatch, run) == 7
    assert len(started) == 1


def test_what_is_set_is_followed_and_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: list[object],
) -> None:
    run = a_complete_run(tmp_path)
    before = (run / "job.yaml").read_text()
    more = ("--set", "spec.stop.epochs=2", "--set", "spec.replicas.count=5")
    assert resumed(monkeypatch, run, *more) == 7
    assert (run / "job.before.yaml").read_text() == before
    kept = manifest_file.load_job(run / "job.yaml")
    (begun,) = started
    assert isinstance(begun, Run)
    assert begun.job == kept
    assert (kept.spec.stop.epochs, kept.spec.replicas.count) == (2, 5)
    assert "job.yaml:8: warning: spec.strategy.downpour.optimizer" in capsys.readouterr().err


def test_a_manifest_that_nothing_is_set_in_is_left_to_its_author(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[object]
) -> None:
    manifest = a_run(tmp_path, "signs_resumed", nn.Linear(1, 1)) / "job.yaml"
    text = manifest.read_text() + "# A note.\n"
    manifest.write_text(text)
    assert resumed(monkeypatch, manifest.parent) == 7
    assert (manifest.read_text(), len(started)) == (text, 1)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("spec.stop.epoch=4", "job.yaml: spec.stop.epoch: unknown field; did you mean 'epochs'?"),
        ("spec.replicas.count=0", "spec.replicas.count: must be at least 1, got 0"),
        ("spec.strategy={downpour: {optimizer: {sgd: {learningRate: 1}}}}", "was adagrad and is"),
        ("spec.checkpoint.uri=s3://elsewhere/run", "leave the place as it is"),
    ],
)
def test_what_is_set_amiss_changes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: list[object],
    assignment: str,
    said: str,
) -> None:
    run = a_run(tmp_path, "signs_resumed", nn.Linear(1, 1))
    before = (run / "job.yaml").read_text()
    assert resumed(monkeypatch, run, "--set", assignment) == 2
    assert said in capsys.readouterr().err
    assert ((run / "job.yaml").read_text(), started) == (before, [])


def test_what_is_set_in_vain_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: list[object],
) -> None:
    run = a_complete_run(tmp_path)
    before = (run / "job.yaml").read_text()
    assert resumed(monkeypatch, run, "--set", "spec.replicas.count=5") == 0
    assert "asks for no more, and is not kept" in capsys.readouterr().out
    assert ((run / "job.yaml").read_text(), started) == (before, [])


def test_a_damaged_manifest_can_be_mended_by_what_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[object]
) -> None:
    run = a_run(tmp_path, "signs_resumed", nn.Linear(1, 1))
    set_field(run, "replicas", {"count": 0})
    assert resumed(monkeypatch, run, "--set", "spec.replicas.count=1") == 7
    assert len(started) == 1


def test_a_job_of_a_cluster_is_not_changed_by_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resumed(monkeypatch, Path("dtj/digits"), "--set", "spec.stop.epochs=2") == 2
    assert "--set: dtj/digits is a job of a cluster" in capsys.readouterr().err


def test_the_newest_whole_checkpoint_is_the_restart_point(tmp_path: Path) -> None:
    assert checkpoint_folder.newest(Location(tmp_path / "none")) is None
    for number in (9, 10, 11):
        last = a_checkpoint(tmp_path, number=number)
    (last.path / "manifest.json").unlink()
    assert checkpoint_folder.newest(Location(tmp_path)) == tmp_path / "00000010"
