"""`disttrain export`: what it writes, prints and refuses."""

from pathlib import Path

import pytest
import safetensors.torch

from builders.checkpoints import a_checkpoint, flip_bit
from builders.jobs import SMALL
from disttrain.checkpoint import names
from disttrain.cli import main


def exported(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["disttrain", "export", *map(str, arguments)])
    try:
        return int(main.main())
    except SystemExit as end:
        return int(end.code or 0)


def test_a_checkpoint_becomes_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = a_checkpoint(tmp_path / "checkpoints")
    out = tmp_path / "model.safetensors"
    assert exported(monkeypatch, checkpoint.path, out) == 0
    assert capsys.readouterr().out == (
        f"wrote {out}: 3 tensors, {out.stat().st_size:,} bytes, of {checkpoint.path}\n"
    )
    assert list(safetensors.torch.load_file(out)["first.weight"].shape) == [5, 7]


@pytest.mark.parametrize("given", [".", "elsewhere", "elsewhere/00000003"])
def test_the_newest_checkpoint_of_a_folder_is_meant(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: str,
) -> None:
    (tmp_path / "job.yaml").write_text(f"{SMALL}  checkpoint: {{uri: elsewhere}}\n")
    for number in (1, 3):
        a_checkpoint(tmp_path / "elsewhere", number=number)
    assert exported(monkeypatch, tmp_path / given, tmp_path / "out") == 0
    assert "elsewhere/00000003" in capsys.readouterr().out


def test_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("mine")
    a_checkpoint(tmp_path / "checkpoints")
    assert exported(monkeypatch, tmp_path / "checkpoints", tmp_path / "out") == 1
    assert "out exists already; delete it or choose another name" in capsys.readouterr().err
    assert (tmp_path / "out").read_text() == "mine"


def test_a_damaged_checkpoint_is_refused_and_the_previous_one_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = a_checkpoint(tmp_path / "checkpoints", number=1)
    damaged = a_checkpoint(tmp_path / "checkpoints", number=2)
    flip_bit(damaged.path / names.part_file(0), -1)
    assert exported(monkeypatch, damaged.path, tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {damaged.path / names.part_file(0)}: its hash is")
    assert f"the one before it is whole: {whole.path}" in said


def test_a_folder_without_checkpoints_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exported(monkeypatch, tmp_path, tmp_path / "out") == 2
    assert f"{tmp_path} holds no checkpoint; name a folder such as" in capsys.readouterr().err


def test_a_file_is_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"exported before")
    assert exported(monkeypatch, model, tmp_path / "again.safetensors") == 2
    said = f"{model} is a file; name the folder of a checkpoint, or that of a run"
    assert capsys.readouterr().err == f"error: {said}\n"
