"""`disttrain validate`: lines and exit codes."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from builders.jobs import BATCH, SMALL
from builders.runs import TASKS
from disttrain.cli.app import app
from disttrain.cli.main import main

BAD = SMALL.replace("batchSize: 32", "batchSize: 0")
WARNED = SMALL.replace("{epochs: 1}", "{targetMetric: {name: accuracy, atLeast: 0.9}}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(SMALL)
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "warned.yaml").write_text(WARNED)
    (tmp_path / "both.yaml").write_text(f"{SMALL}---\n{BAD}")
    return tmp_path


def validated(*files: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(app, ["validate", *files])
    return result.exit_code, result.output.splitlines()


def test_a_good_manifest_is_ok(folder: Path) -> None:
    assert validated("good.yaml") == (0, ["ok digits"])


def test_a_bad_manifest_is_explained(folder: Path) -> None:
    expected = "bad.yaml:9: spec.batchSize: must be at least 1, got 0"
    assert validated("bad.yaml") == (2, [expected])


@pytest.mark.parametrize("command", ["validate", "run", "submit"])
def test_a_manifest_cannot_steer_the_terminal(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = '"\\e]0;owned\\a\\e[2J\\u202e"'
    bad = SMALL.replace("{name: digits}", f"{{name: {name}}}").replace("epochs", name)
    (folder / "bad.yaml").write_text(bad)
    monkeypatch.setattr("sys.argv", ["disttrain", command, "bad.yaml"])
    with pytest.raises(SystemExit):
        sys.exit(main())
    printed = "".join(capsys.readouterr())
    assert "metadata.name: " in printed
    assert all(line.isprintable() for line in printed.splitlines())


@pytest.fixture
def streaming(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A manifest, whose task lies beside it."""
    shutil.copy(TASKS / "counting.py", folder)
    manifest = SMALL.replace(
        "digits:Digits", "counting:StreamingOneWay, arguments: {kind: sources}"
    )
    (folder / "job.yaml").write_text(manifest)
    monkeypatch.setattr("sys.path", list(sys.path))
    yield "job.yaml"
    sys.modules.pop("counting", None)


def test_a_task_is_tried_when_asked_for(folder: Path, streaming: str) -> None:
    assert validated(streaming) == (0, ["ok digits"])
    code, (line,) = validated("--task", streaming)
    assert code == 2
    assert line.startswith("job.yaml: spec.task.entrypoint: Task.dataset('train') cannot go on ")

    manifest = folder / streaming
    manifest.write_text(manifest.read_text().replace("OneWay, arguments: {kind: sources}", ""))
    assert validated("--task", streaming) == (0, ["ok digits"])


def test_a_warning_is_shown_and_the_manifest_is_good(folder: Path) -> None:
    code, lines = validated("warned.yaml")
    assert code == 0
    assert lines[0].startswith("warned.yaml:10: warning: spec.stop.targetMetric: is the only ")
    assert lines[1:] == ["ok digits"]


def test_every_file_and_every_document_is_checked(folder: Path) -> None:
    code, lines = validated("nowhere.yaml", "both.yaml", "good.yaml")
    assert code == 2
    assert lines == [
        "nowhere.yaml: cannot be read: No such file or directory",
        "ok digits",
        "both.yaml:20: spec.batchSize: must be at least 1, got 0",
        "ok digits",
    ]


def test_a_manifest_may_come_from_another_command() -> None:
    result = CliRunner().invoke(app, ["validate", "-"], input=BAD)
    assert result.output == "-:9: spec.batchSize: must be at least 1, got 0\n"


def test_no_file_is_a_bad_call(folder: Path) -> None:
    code, lines = validated()
    assert code == 2
    assert any("Missing argument" in line for line in lines)


def test_a_rate_that_changes_is_drawn(folder: Path) -> None:
    schedule = "{warmup: {fraction: 0.1}, warmupStableDecay: {decay: {fraction: 0.5}}}"
    rule = f"learningRate: 0.1, schedule: {schedule}"
    (folder / "drawn.yaml").write_text(SMALL.replace("learningRate: 0.1", rule))
    code, (ok, drawn) = validated("drawn.yaml")
    assert (code, ok) == (0, "ok digits")
    said, _, bars = drawn.partition(": ")
    assert said == "   learning rate over 1 epoch"
    assert bars.split() == [
        "0",
        "▁▂▄▅▇█████████████████████▇▇▇▆▆▆▅▅▅▅▄▄▄▃▃▃▂▂▂▂▁▁",
        "0,",
        "at",
        "most",
        "0.1",
    ]


def test_a_rate_that_steps_above_the_full_one_is_drawn_below_its_highest(folder: Path) -> None:
    rule = "learningRate: 0.1, schedule: {steps: {atEpochs: [1], factor: 2}}"
    risen = SMALL.replace("learningRate: 0.1", rule).replace("{epochs: 1}", "{epochs: 3}")
    (folder / "risen.yaml").write_text(risen)
    code, (_, drawn) = validated("risen.yaml")
    bars = "▅" * 16 + "█" * 32
    assert (code, drawn) == (0, f"   learning rate over 3 epochs: 0.1 {bars} 0.2, at most 0.2")


def test_of_a_batch_method_the_rate_of_the_warm_start_is_drawn(folder: Path) -> None:
    sgd = "sgd: {learningRate: 0.1, schedule: {linear: {}}}"
    warm = f"      warmStart: {{samples: 100, batchSize: 5, {sgd}}}\n  stop:"
    (folder / "warm.yaml").write_text(BATCH.replace("  stop:", warm))
    code, lines = validated("warm.yaml")
    assert code == 0
    assert lines[-1].startswith("   learning rate of the warm start over 100 samples: 0.1 █")


def test_a_rate_that_the_data_decides_is_not_drawn(folder: Path) -> None:
    rule = "learningRate: 0.1, schedule: {linearWarmup: {samples: 5}}"
    (folder / "later.yaml").write_text(SMALL.replace("learningRate: 0.1", rule))
    assert validated("later.yaml") == (0, ["ok digits"])
