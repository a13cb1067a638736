"""A job that keeps a moving average: what it measures, exports and can repeat, beside PyTorch's."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.optim import SGD, Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from builders.commands import disttrain
from builders.runs import RunningJob
from oracles import serial
from oracles.serial import AfterStep, Course
from tasks.proving import Proving

pytestmark = [pytest.mark.landing, pytest.mark.usefixtures("one_thread")]

JOB = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: averaging}
spec:
  task: {entrypoint: proving:Proving}
  strategy:
    downpour:
      maxInFlight: 0
      optimizer: {momentum: {learningRate: 0.02}}
      ema: {halfLife: {epochs: 0.25}}
  batchSize: 8
  portionSize: 80
  stop: {epochs: 2}
  evaluation: {everyEpochs: 1}
  coordinator: {heartbeatSeconds: 0.2}
  parameterServer: {threads: 1, shards: 2}
  replicas: {count: 1, device: cpu, threads: 1}
"""
BATCH, HALF_LIFE = 8, 200
"""Of 800 samples."""


class Averaging:
    """PyTorch's, after each step of an optimizer."""

    def __init__(self) -> None:
        self.averages: list[Tensor] = []

    def follow(self, optimizer: Optimizer) -> AfterStep:
        trained = optimizer.param_groups[0]["params"]
        self.averages = [parameter.detach().clone() for parameter in trained]
        decay = 0.5 ** (BATCH / HALF_LIFE)
        move = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        return lambda: move(self.averages, [parameter.detach() for parameter in trained], None)


def distance(found: dict[str, Tensor], model: nn.Module) -> float:
    wanted = parameters_to_vector(model.parameters()).detach()
    got = torch.cat([found[name].flatten() for name, _ in model.named_parameters()])
    return float((got - wanted).norm() / wanted.norm())


def test_evaluations_and_exports_are_of_the_average_and_the_parameters_can_be_had(
    tmp_path: Path,
) -> None:
    with RunningJob(tmp_path, (), JOB) as job:
        assert job.wait() == 0
    course, averaging = Course(task=Proving()), Averaging()
    model = serial.plain_loop(
        course,
        lambda parameters: SGD(parameters, lr=0.02, momentum=0.9),
        scheduler=averaging.follow,
    )
    exported, plain = job.output / "model.safetensors", tmp_path / "plain.safetensors"
    assert disttrain("export", job.output, plain, "--vector", "parameters").code == 0
    assert distance(load_file(plain), model) < 1e-6

    for parameter, average in zip(model.parameters(), averaging.averages, strict=True):
        parameter.data.copy_(average)
    assert distance(load_file(exported), model) < 1e-6
    assert distance(load_file(plain), model) > 1e-3
    measured = serial.evaluated(course.task, model)
    assert job.summary()["finalLoss"] == pytest.approx(measured["loss"], rel=1e-5)
    lines = (job.output / "metrics.jsonl").read_text().splitlines()
    found = [line["evaluation"]["loss"] for line in map(json.loads, lines) if "evaluation" in line]
    assert found[-1] == pytest.approx(measured["loss"], rel=1e-5)

    said = disttrain("evaluate", job.output)
    assert f"loss {measured['loss']:.4g}"[:9] in said.out
    wrong = disttrain("export", job.output, tmp_path / "none", "--vector", "velocity")
    assert wrong.code == 1
    assert "name one of average, momentum, parameters" in wrong.err


@pytest.mark.nightly
def test_an_asynchronous_run_with_an_average_is_repeated_bit_for_bit(tmp_path: Path) -> None:
    several = (
        "spec.record=true",
        "spec.replicas.count=3",
        "spec.strategy.downpour.maxInFlight=1",
        "spec.strategy.downpour.fetchAs=bfloat16",
    )
    with RunningJob(tmp_path, several, JOB) as job:
        assert job.wait() == 0

    answer = disttrain("replay", job.output, "--json")
    found: dict[str, Any] = json.loads(answer.out) if answer.out else {}
    assert (answer.code, found.get("differences")) == (0, []), answer.err
    assert found["values"]["first_difference"] == ""
    assert disttrain("audit", job.output).code == 0
