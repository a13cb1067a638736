"""With a loss over tokens, a job trains and measures what PyTorch does over all of them alike."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from builders.runs import RunningJob
from disttrain import LossContext
from oracles.serial import Course
from tasks import tokens
from tasks.tokens import Tokens

DOWNPOUR = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: tokens}
spec:
  task: {entrypoint: tokens:Tokens}
  strategy:
    downpour:
      maxInFlight: 0
      pushEvery: 4
      fetchEvery: 4
      localLearningRate: 0
      optimizer: {sgd: {learningRate: 0.2}}
  batchSize: 8
  portionSize: 80
  stop: {epochs: 2}
  evaluation: null
  coordinator: {heartbeatSeconds: 0.2}
  parameterServer: {threads: 1, shards: 2}
  replicas: {count: 1, device: cpu, threads: 1}
"""
SANDBLASTER = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: tokens}
spec:
  task: {entrypoint: tokens:Tokens}
  strategy:
    sandblaster:
      precision: float64
      portionSize: 16
      pushEveryPortions: 2
      optimizer: {lbfgs: {}}
  stop: {iterations: 100}
  evaluation: null
  coordinator: {heartbeatSeconds: 0.2}
  parameterServer: {threads: 1, shards: 2}
  replicas: {count: 2, device: cpu, threads: 1}
"""


def pushed_by_hand() -> torch.nn.Module:
    """Every push: the gradient of the loss over its batches together, times its steps.

    Fetches are before the steps 0, 4, 8 ..., pushes after them.
    """
    course, task = Course(task=Tokens()), Tokens()
    model, batches = course.model(), list(course.batches())
    served = parameters_to_vector(model.parameters()).detach().clone()
    total, count, steps = torch.zeros_like(served), 0.0, 0
    for step, batch in enumerate(batches):
        if step % 4 == 0:
            vector_to_parameters(served.clone(), model.parameters())
        loss = task.loss(model, batch, LossContext())
        gradients = torch.autograd.grad(loss.sum, list(model.parameters()))
        total += torch.cat([one.flatten() for one in gradients])
        count, steps = count + float(loss.count), steps + 1
        if step % 4 == 0 or step == len(batches) - 1:
            served -= 0.2 * total * steps / count
            total, count, steps = torch.zeros_like(served), 0.0, 0
    vector_to_parameters(served, model.parameters())
    return model


def test_pushes_of_several_steps_and_evaluations_count_every_token_alike(tmp_path: Path) -> None:
    with RunningJob(tmp_path, (), DOWNPOUR) as job:
        assert job.wait() == 0
    wanted, found = pushed_by_hand(), Tokens().model()
    found.load_state_dict(load_file(job.output / "model.safetensors"))

    distance = parameters_to_vector(found.parameters()) - parameters_to_vector(wanted.parameters())
    assert float(distance.norm().detach()) < 1e-5
    final = float(tokens.over_all(Tokens(), found, "test").detach())
    assert job.summary()["finalLoss"] == pytest.approx(final, rel=1e-5)


def test_what_a_loss_reports_is_averaged_into_the_metrics(tmp_path: Path) -> None:
    with RunningJob(tmp_path, ("spec.stop.epochs=1000000",), DOWNPOUR) as job:
        metrics = job.output / "metrics.jsonl"
        job.wait_until(lambda _: metrics.exists() and '"reported"' in metrics.read_text())
        job.interrupt()
        assert job.wait() == 130
        job.assert_promises_held()
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    reported = [line["reported"] for line in lines if "reported" in line]

    assert reported
    assert all(8 <= one["tokens"] <= 48 for one in reported)


def test_a_batch_method_minimises_the_loss_over_all_tokens(tmp_path: Path) -> None:
    with RunningJob(tmp_path, (), SANDBLASTER) as job:
        assert job.wait() == 0
    found = Tokens().model().double()
    found.load_state_dict(load_file(job.output / "model.safetensors"))

    loss = tokens.over_all(Tokens(), found.float(), "train")
    gradients = torch.autograd.grad(loss, list(found.parameters()))
    assert max(float(one.abs().max()) for one in gradients) < 1e-4
    wanted = float(tokens.over_all(Tokens(), found, "test").detach())
    assert job.summary()["finalLoss"] == pytest.approx(wanted, rel=1e-5)
