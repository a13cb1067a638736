"""A job whose model PEFT has adapted: the base stays with the replicas, PEFT reads the export."""

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from builders.runs import RunningJob

EXAMPLE = Path(__file__).parents[2] / "examples/language"
SIZES = {"context": 16, "width": 16}


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for module in EXAMPLE.glob("*.py"):
        shutil.copy(module, tmp_path)
    text = (EXAMPLE.parent / "data/shakespeare-sample.txt").read_bytes()
    (tmp_path / "text.txt").write_bytes(text[:20_000])
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_modules()
    yield tmp_path
    forget_modules()


def forget_modules() -> None:
    """Those of the example, of whichever folder."""
    for module in EXAMPLE.glob("*.py"):
        sys.modules.pop(module.stem, None)


def made(example: Path, module: str, task: str, **arguments: Any) -> torch.nn.Module:
    """The model of a task of the copied example."""
    spec = importlib.util.spec_from_file_location(module, example / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    model: torch.nn.Module = getattr(loaded, task)(text="text.txt", **SIZES, **arguments).model()
    return model


def test_the_adapter_alone_is_trained_and_exported(example: Path) -> None:
    import peft  # noqa: PLC0415  It brings transformers, which takes seconds.

    base = made(example, "language", "Language")
    safetensors.torch.save_file(base.state_dict(), example / "base.safetensors")
    arguments = {"base": "base.safetensors", "text": "text.txt", "rank": 2, **SIZES}
    settings = [
        "spec.task.entrypoint=peft_lora:PeftLora",
        *(f"spec.task.arguments.{name}={value}" for name, value in arguments.items()),
        "spec.stop.epochs=1",
    ]
    with RunningJob(example, settings, (EXAMPLE / "job-lora.yaml").read_text()) as job:
        assert job.wait() == 0, job.printed()
    job.assert_promises_held()

    adapter = safetensors.torch.load_file(job.output / "model.safetensors")
    named = {name.replace(".default.", "."): value for name, value in adapter.items()}
    model = made(example, "peft_lora", "PeftLora", base="base.safetensors", rank=2)
    assert peft.set_peft_model_state_dict(model, named).unexpected_keys == []
    assert named.keys() == peft.get_peft_model_state_dict(model).keys()
    assert any(bool(value.any()) for name, value in named.items() if "lora_B" in name)
