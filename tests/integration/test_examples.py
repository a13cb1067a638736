"""Every example trains, and what it exports is a plain PyTorch model that measures the same."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from builders.commands import Answer, disttrain
from disttrain import Split, Task
from disttrain.job import manifest_file
from disttrain.task.loading import load_task

pytestmark = pytest.mark.landing

EXAMPLES = Path(__file__).parents[2] / "examples"

CHANCE = {
    "digits": 0.1,
    "cifar10": 0.1,
    "softmax_regression": 0.1,
    "speech": 1 / 30,
    "language": 0.152,
    "image-local": 0.1,
}
"""What guessing gets right; speech has ten digits of three states, and a text its spaces."""
LONG = {"cifar10", "image-local"}
FRAMES = 6514
"""Of the speech sample's training data."""
REASONS = {"softmax_regression": "Iterations"}


def ran(folder: Path, manifest: Path, *arguments: str) -> tuple[Answer, dict[str, Any]]:
    """How `disttrain run` ended, and the summary."""
    answer = disttrain("run", manifest, "--output", folder / "output", *arguments)
    summary: dict[str, Any] = json.loads((folder / "output" / "summary.json").read_text())
    return answer, summary


def accuracy_in_plain_pytorch(task: Task, model: nn.Module) -> float:
    """On the whole test split, with nothing of DistTrain but the user's class."""
    dataset = task.dataset(Split.TEST)
    samples = len(dataset)  # type: ignore[arg-type]
    at_once = getattr(dataset, "__getitems__", None)
    correct = 0.0
    model.eval()
    with torch.no_grad():
        for first in range(0, samples, 256):
            indices = list(range(first, min(first + 256, samples)))
            chosen = at_once(indices) if at_once else [dataset[index] for index in indices]
            correct += float(task.measure(model, task.collate(chosen))["accuracy"])
    return correct / samples


def assert_the_export_measures_the_same(manifest: Path, output: Path) -> None:
    job = manifest_file.load_job(manifest)
    reference = job.spec.task
    task = load_task(reference.entrypoint, reference.arguments, manifest.parent)
    model = task.model()
    model.load_state_dict(load_file(output / "model.safetensors"), strict=True)
    measured = accuracy_in_plain_pytorch(task, model)
    summary = json.loads((output / "summary.json").read_text())
    assert summary["finalMeasures"]["accuracy"] == pytest.approx(measured, abs=2e-3)


def test_local_steps_of_three_replicas_reach_the_target_of_the_digits(tmp_path: Path) -> None:
    manifest = EXAMPLES / "digits" / "job-local-steps.yaml"
    answer, summary = ran(tmp_path, manifest)
    assert answer.code == 0, answer.err

    assert summary["reason"] == "TargetMetric"
    assert summary["finalMeasures"]["accuracy"] >= 0.98
    assert_the_export_measures_the_same(manifest, tmp_path / "output")


def test_image_local_in_partitions_learns_in_an_epoch(tmp_path: Path) -> None:
    manifest = EXAMPLES / "image-local" / "job-small.yaml"
    answer, summary = ran(tmp_path, manifest, "--set", "spec.stop.epochs=1")
    assert answer.code == 0, answer.err
    assert summary["finalMeasures"]["accuracy"] > 1.5 * CHANCE["image-local"]


def test_an_autoencoder_learns_jointly_in_an_epoch(tmp_path: Path) -> None:
    manifest = EXAMPLES / "autoencoder" / "job-small.yaml"
    short = ("--set", "spec.stop.epochs=1", "--set", "spec.replicas.count=1")
    answer, summary = ran(tmp_path, manifest, *short)
    assert answer.code == 0, answer.err
    # Nothing reconstructed is 0.45 and 0.96.
    assert summary["finalMeasures"]["squared_error_1"] < 0.35
    assert summary["finalMeasures"]["squared_error_2"] < 0.7


GREEDY = (
    *("--set", "spec.task.arguments.stack_samples=2000"),
    *("--set", "spec.replicas.partitions=2"),
)


@pytest.mark.nightly
def test_stacks_of_an_autoencoder_learn_jointly_and_one_after_the_other(tmp_path: Path) -> None:
    for name, manifest in (("joint", "job-small.yaml"), ("greedy", "job.yaml")):
        short = ("--set", "spec.stop.epochs=2", "--set", "spec.task.arguments.channels=4")
        turn = () if name == "joint" else GREEDY
        folder = tmp_path / name
        answer, summary = ran(folder, EXAMPLES / "autoencoder" / manifest, *short, *turn)
        assert answer.code == 0, answer.err
        measures = summary["finalMeasures"]
        # Nothing reconstructed is 0.45 and 0.96.
        assert measures["squared_error_1"] < 0.35
        assert measures["squared_error_2"] < 0.7


def warm_start_samples(manifest: Path) -> int:
    first = manifest_file.load_job(manifest).spec.strategy.rule.first_stage
    assert first is not None
    return first.samples


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.nightly) if each in LONG else each for each in CHANCE],
)
def test_the_small_variant_learns_and_its_export_measures_the_same(
    tmp_path: Path, name: str
) -> None:
    manifest = EXAMPLES / name / "job-small.yaml"
    answer, summary = ran(tmp_path, manifest)
    assert answer.code == 0, answer.err
    assert (summary["phase"], summary["reason"]) == ("Complete", REASONS.get(name, "Epochs"))
    assert summary["finalMeasures"]["accuracy"] > 1.5 * CHANCE[name]
    assert_the_export_measures_the_same(manifest, tmp_path / "output")


@pytest.mark.nightly
def test_speech_is_learned_by_lbfgs(tmp_path: Path) -> None:
    manifest = EXAMPLES / "speech" / "job-sandblaster.yaml"
    answer, summary = ran(tmp_path, manifest, "--set", "spec.stop.iterations=12")
    assert answer.code == 0, answer.err
    assert (summary["phase"], summary["reason"]) == ("Complete", "Iterations")
    assert summary["finalMeasures"]["accuracy"] > 1.5 * CHANCE["speech"]
    method = summary["sandblaster"]
    assert method["warmStartSamples"] == warm_start_samples(manifest)
    assert summary["samples"] == method["warmStartSamples"] + FRAMES * method["evaluations"]
    assert_the_export_measures_the_same(manifest, tmp_path / "output")


@pytest.mark.nightly
def test_digits_are_learned_as_well_in_half_of_the_bits(tmp_path: Path) -> None:
    manifest = EXAMPLES / "digits" / "job.yaml"
    serial = ("spec.replicas.count=1", "spec.strategy.downpour.maxInFlight=0", "spec.stop.epochs=5")
    half = tuple(
        f"spec.strategy.downpour.{field}=bfloat16" for field in ("precision", "pushAs", "fetchAs")
    )
    found = []
    for number, assignments in enumerate((serial, serial + half)):
        options = [each for assignment in assignments for each in ("--set", assignment)]
        answer, summary = ran(tmp_path / str(number), manifest, *options)
        assert answer.code == 0, answer.err
        found.append(summary["finalMeasures"]["accuracy"])
    exact, rounded = found
    assert rounded > exact - 0.015


def test_the_demo_reaches_97_percent(tmp_path: Path) -> None:
    manifest = EXAMPLES / "digits" / "job.yaml"
    answer, summary = ran(tmp_path, manifest)
    assert answer.code == 0, answer.err
    assert summary["phase"] == "Complete"
    # The order of updates differs from run to run: some end near 97.5% after the last epoch.
    assert summary["bestMeasures"]["accuracy"]["highest"] >= 0.97
    least = 0.98 if summary["reason"] == "TargetMetric" else 0.96
    assert summary["finalMeasures"]["accuracy"] >= least, summary["reason"]
    assert_the_export_measures_the_same(manifest, tmp_path / "output")


def test_an_example_runs_from_a_copy_elsewhere(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "digits", tmp_path / "mine")
    code, out, _ = disttrain("validate", "job.yaml", "job-small.yaml", folder=tmp_path / "mine")
    assert code == 0, out
