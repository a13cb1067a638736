"""`disttrain evaluate`: a checkpoint's measures, with the task of its job."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from builders.checkpointed_runs import a_run, checkpoint_of
from builders.runs import set_field
from disttrain.checkpoint import names
from disttrain.cli import grids, main
from disttrain.cli.divided_evaluation import divided_as
from disttrain.coordinator.journal.state import State, to_json
from disttrain.job import parsing
from disttrain.job.spec import FrozenParameters
from disttrain.replica import model_tensors


def evaluated(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["disttrain", "evaluate", *map(str, arguments)])
    # The task's folder is put into sys.path; this list is thrown away afterwards.
    monkeypatch.setattr("sys.path", list(sys.path))
    try:
        return int(main.main())
    except SystemExit as end:
        return int(end.code or 0)


MANIFEST = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: divided}
spec:
  task: {entrypoint: "images:Images"}
  strategy: {localSteps: {steps: 3, optimizer: {name: SGD, arguments: {lr: 0.1}}}}
  batchSize: 8
  stop: {epochs: 1}
  replicas: REPLICAS
"""


@pytest.mark.parametrize(
    ("trained", "asked", "wanted"),
    [
        ("{ranks: 3, inner: ddp, threads: 2}", (4, None), "{partitions: 4, threads: 2}"),
        ("{partitions: 6, grid: 1x6}", (6, None), "{partitions: 6, grid: 1x6}"),
        ("{partitions: 6, grid: 1x6}", (None, "3x2"), "{partitions: 6, grid: 3x2}"),
        ("{grid: 1x6}", (6, None), "{partitions: 6, grid: 1x6}"),
        ("{grid: 1x6}", (4, None), "{partitions: 4}"),
        (
            "{partitions: 6, grid: 1x6, partitioning: {head: whole}}",
            (4, None),
            "{partitions: 4, partitioning: {head: whole}}",
        ),
    ],
)
def test_the_partitions_asked_for_take_the_place_of_those_of_training(
    trained: str, asked: tuple[int | None, str | None], wanted: str
) -> None:
    job, as_wanted = (
        parsing.parse_job(MANIFEST.replace("REPLICAS", text), source="job.yaml")
        for text in (trained, wanted)
    )
    found = divided_as(job, grids.processes(*asked))
    assert found.spec.replicas == as_wanted.spec.replicas


def test_one_process_evaluates_whatever_the_manifest_says_of_training() -> None:
    assert grids.processes(None, None).partitions == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--partitions", "4", "--grid", "1x3"), "must be of 4 (--partitions), got 1x3"),
        (("--grid", "2by2"), "must be rows and columns, as 2x3, got '2by2'"),
        (("--grid", "0x2"), "must be rows and columns, as 2x3, got '0x2'"),
        (("--grid", "64x64"), "at most 1024 partitions, got 64x64"),
        (("--partitions", "0"), "'--partitions': must be at least 1, got 0"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    said: str,
) -> None:
    assert evaluated(monkeypatch, "nowhere", *options) == 2
    assert said in capsys.readouterr().err


def a_line(weight: float, bias: float, width: int = 1) -> nn.Linear:
    model = nn.Linear(1, width)
    with torch.no_grad():
        model.weight.fill_(weight)
        model.bias.fill_(bias)
    return model


def test_the_checkpoints_values_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path, "signs_good", a_line(100.0, 0.5))
    checkpoint_of(run / "checkpoints", a_line(-100.0, 0.5), number=2)
    assert evaluated(monkeypatch, run / "checkpoints" / "00000001") == 0
    good = capsys.readouterr().out.splitlines()
    assert evaluated(monkeypatch, run) == 0
    bad = capsys.readouterr().out.splitlines()
    assert good[0].endswith("checkpoints/00000001")
    assert (good[1], good[3]) == ("samples 40", "accuracy 1")
    assert (bad[0][-8:], bad[3]) == ("00000002", "accuracy 0")
    assert good[2].startswith("loss ")


def test_a_checkpoint_elsewhere_needs_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path, "signs_moved", a_line(100.0, 0.5))
    moved = (run / "checkpoints" / "00000001").rename(tmp_path / "00000001")
    assert evaluated(monkeypatch, moved) == 2
    assert "name its job with --job" in capsys.readouterr().err
    assert evaluated(monkeypatch, moved, "--job", tmp_path / "job.yaml") == 0
    assert "accuracy 1" in capsys.readouterr().out


def test_the_task_of_a_runs_own_manifest_lies_where_the_run_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path, "signs_own", a_line(100.0, 0.5))
    moved = (run / "checkpoints" / "00000001").rename(tmp_path / "00000001")
    assert evaluated(monkeypatch, moved, "--job", run / "job.yaml") == 0
    assert "accuracy 1" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["job.yaml", "checkpoints/00000001/manifest.json"])
def test_of_a_file_of_a_run_the_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    file = a_run(tmp_path, "signs_named", a_line(1.0, 0.0)) / name
    assert evaluated(monkeypatch, file) == 2
    assert capsys.readouterr().err.endswith(f"or that of a run: {file.parent}\n")


def test_a_checkpoint_of_another_model_names_the_first_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path, "signs_other", a_line(1.0, 0.0, width=3))
    assert evaluated(monkeypatch, run) == 1
    assert (
        "'weight' is float32 of shape [3, 1] in the checkpoint, float32 of shape [1, 1] in the "
        "model"
    ) in capsys.readouterr().err


SCALED = '''


class Scaled(nn.Linear):
    """Its base, a frozen number, comes from the task's arguments as from a file."""

    def __init__(self, base: float) -> None:
        super().__init__(1, 1)
        self.base = nn.Parameter(torch.tensor([base]), requires_grad=False)

    def forward(self, x):
        return super().forward(x) * self.base


class OfABase(Signs):
    def __init__(self, base: float) -> None:
        super().__init__()
        self.base = base

    def model(self):
        return Scaled(self.base)
'''


def test_another_base_of_an_adapter_is_told_from_that_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path, "signs_adapted", a_line(100.0, 0.5))
    module = tmp_path / "signs_adapted.py"
    module.write_text(module.read_text() + SCALED)
    task = {"entrypoint": "signs_adapted:OfABase", "arguments": {"base": 1.0}, "frozen": "own"}
    set_field(run, "task", task)
    model = a_line(100.0, 0.5)
    model.base = nn.Parameter(torch.tensor([1.0]), requires_grad=False)
    layout = model_tensors.describe(model, frozen=FrozenParameters.OWN).with_hash().layout
    kept = run / "checkpoints" / "00000001" / names.COORDINATOR
    kept.write_bytes(to_json(State(layout=layout)))

    assert evaluated(monkeypatch, run) == 0
    assert "accuracy 1" in capsys.readouterr().out
    set_field(run, "task.arguments.base", 2.0)
    assert evaluated(monkeypatch, run) == 1
    said = capsys.readouterr().err
    assert "frozen parameters have other values" in said
    assert layout.own in said
