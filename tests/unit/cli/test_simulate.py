"""`disttrain simulate` as it is called."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from disttrain.cli import main

TASKS = Path(__file__).parents[2] / "tasks"
JOB = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: proving}
spec:
  task: {entrypoint: proving:Proving}
  strategy: {downpour: {optimizer: {sgd: {learningRate: 0.05}}}}
  batchSize: 8
  stop: {epochs: 2, targetMetric: {name: accuracy, atLeast: 0.5}}
  replicas: {device: cpu}
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    shutil.copy(TASKS / "proving.py", tmp_path)
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    yield file
    # Each command is a process of its own, which knows no earlier task.
    sys.modules.pop("proving", None)


def simulated(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["disttrain", "simulate", *map(str, arguments)])
    monkeypatch.setattr("sys.path", list(sys.path))
    try:
        return int(main.main())
    except SystemExit as end:
        return int(end.code or 0)


def test_a_table_a_picture_and_advice_are_printed(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ("--replicas", "2,1", "--step-seconds", "0.1", "--bandwidth", "100Mb")
    assert simulated(monkeypatch, job, *said) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == f"{job} (downpour): until accuracy >= 0.5"
    assert [line.split()[0] for line in lines[2:4]] == ["1", "2"]
    assert lines[-1].startswith("Take ")
    assert not printed.err, "nobody looks at a terminal"


def test_the_step_is_measured_here_if_nothing_is_said(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(monkeypatch, job, "--replicas", "1", "--json") == 0
    printed = capsys.readouterr()
    assert re.match(rf"{job}: a step takes [0-9.e-]+ s here", printed.err)
    (document,) = json.loads(printed.out)["jobs"]
    assert document["runs"][0]["targetMet"]


def test_several_manifests_are_compared_each_with_its_fields(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = job.with_name("other.yaml")
    other.write_text(JOB.replace("name: proving}", "name: other}", 1).replace("0.05", "0.01"))
    said = ("--replicas", "1", "--step-seconds", "0.1", "--set", "spec.stop.epochs=1", "--json")
    assert simulated(monkeypatch, job, other, *said) == 0
    whole = json.loads(capsys.readouterr().out)
    documents = whole["jobs"]
    assert whole["quickest"]["manifest"] in whole["advice"]
    assert [each["job"] for each in documents] == ["proving", "other"]
    assert documents[0]["runs"] != documents[1]["runs"]
    assert max(each["runs"][0]["samples"] for each in documents) <= 800


def test_other_strategies_of_one_manifest_are_compared_and_the_quickest_is_named(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a line that a push and a fetch fill for longer than a step."""
    local = "spec.strategy={localSteps: {steps: 10, optimizer: {name: SGD, arguments: {lr: 0.05}}}}"
    said = ("--replicas", "2", "--step-seconds", "0.05", "--bandwidth", "1Mb")
    assert simulated(monkeypatch, job, *said, "--variant", local) == 0
    *tables, advice = capsys.readouterr().out.splitlines()
    assert advice.startswith(f"The quickest is {job}, {local} (localSteps) with 2 replicas: accu")
    assert [line for line in tables if ": until" in line] == [
        f"{job} (downpour): until accuracy >= 0.5",
        f"{job}, {local} (localSteps): until accuracy >= 0.5",
    ]


def test_a_batch_method_is_simulated_with_more_replicas_than_it_has_groups(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    method = (
        "sandblaster: {portionSize: 100, pushEveryPortions: 1, backupTasks: {enabled: false}, "
        "optimizer: {lbfgs: {}}}"
    )
    text = JOB.replace("downpour: {optimizer: {sgd: {learningRate: 0.05}}}", method)
    job.write_text(text.replace("  batchSize: 8\n", ""))
    said = ("--replicas", "1,8,2000", "--step-seconds", "0.1", "--set", "spec.stop.epochs=20")
    assert simulated(monkeypatch, job, *said) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["1", "8", "2000"]
    assert len({line.split()[3] for line in lines[2:5]}) == 1, "samples"
    assert " -  " in lines[2]
    assert lines[-1].startswith("Take 8 replicas: accuracy >= 0.5 after")


@pytest.mark.parametrize(
    ("said", "code", "message"),
    [
        (("--replicas", "none"), 2, "--replicas: 'none' names no numbers of replicas"),
        (("--bandwidth", "fast"), 2, "--bandwidth: 'fast' is no bandwidth"),
        (("--straggler", "9=2"), 2, "--straggler: there is no replica 9 of 8"),
        (("--straggler", "1=2", "--straggler", "01=3"), 2, "replica 1 is named twice; keep one"),
        (("sub/../job.yaml",), 2, "job.yaml is given twice; name each manifest once"),
        (("--step-seconds", "inf"), 2, "'--step-seconds': must be at most 3600, got inf"),
        (("--step-seconds", "-1"), 2, "'--step-seconds': must be at least 1e-06, got -1"),
        (("--latency", "1e300"), 2, "--latency: '1e300' is no time of at most 1000 s; write 50us"),
        (("--straggler", f"1={'9' * 400}"), 2, "999' is none; write 3=4 for a replica 3"),
        (("--bandwidth", f"{'9' * 400}Gb"), 2, "999' is no bandwidth; write 1Gb or 100Mb"),
        (("--replicas", "1,600"), 2, "600 of strategy.downpour are too many"),
        (
            ("--replicas", "600", "--set", "spec.strategy={localSteps: {}}"),
            2,
            "600 of strategy.localSteps are too many",
        ),
        (("--replicas", "5000"), 2, "at least 1 and at most 4096"),
        (("--set", "spec.batchSize=0"), 2, "spec.batchSize: must be"),
        (("--variant", "spec.batchSize=0"), 2, "spec.batchSize: must be"),
        (("--set", "spec.task.entrypoint=proving:Absent"), 1, "Absent"),
    ],
)
def test_a_mistake_is_named_before_anything_is_simulated(
    job: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    (job.parent / "sub").mkdir()
    monkeypatch.chdir(job.parent)
    assert simulated(monkeypatch, job, *said) == code
    printed = capsys.readouterr()
    assert message in printed.err
    assert not printed.out
