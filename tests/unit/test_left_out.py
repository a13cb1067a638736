"""What the last line of a test command names, and what fails where a cluster has to be."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

import left_out
from builders import shared_cluster
from cluster import hooks, prerequisites

END_TO_END = Path(__file__).parents[1] / "end_to_end"


def the_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cluster: str
) -> str:
    monkeypatch.setattr(sys, "argv", ["left_out.py", cluster, "benchmarks, mutants"])
    assert left_out.main() == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    return line.rstrip()


@pytest.fixture(autouse=True)
def _a_machine_with_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(prerequisites, "reason_against", lambda: None)
    for name in ("KUBECONFIG", hooks.LOAD, hooks.KILL):
        monkeypatch.setenv(name, "given")


def test_where_everything_is_only_what_is_for_other_commands_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert the_line(monkeypatch, capsys, "own") == "left out: benchmarks, mutants"


def test_a_missing_gpu_and_a_missing_cluster_are_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(prerequisites, "reason_against", lambda: "a test cluster needs root")

    assert the_line(monkeypatch, capsys, "own") == (
        "left out: benchmarks, mutants, tests on a GPU (PyTorch finds none), "
        "tests on a Kubernetes (a test cluster needs root)"
    )


def test_on_a_strangers_cluster_what_would_break_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(hooks.KILL)

    line = the_line(monkeypatch, capsys, "existing")

    assert "tests that stop nodes or the API server" in line
    assert f"tests that need an image or kill a container (not set: {hooks.KILL};" in line


@pytest.mark.parametrize("outcome", [pytest.fail.Exception, pytest.skip.Exception])
def test_what_is_missing_fails_where_a_cluster_is_required(outcome: type[BaseException]) -> None:
    options = {"--require-cluster": outcome is pytest.fail.Exception}
    config = cast(pytest.Config, SimpleNamespace(getoption=options.__getitem__))

    with pytest.raises(outcome, match="no Go"):
        shared_cluster.there_is_none(config, "no Go")


def test_no_test_decides_by_itself_to_be_skipped_for_what_is_missing() -> None:
    skipping = {
        path.name
        for path in END_TO_END.rglob("*.py")
        if path.name != "conftest.py" and "Unavailable" in path.read_text()
    }

    assert not skipping, "a fixture of conftest.py asks `there_is_none`"
