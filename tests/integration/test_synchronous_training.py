"""Divided replicas in step: each round of them is one step by the mean gradient of all."""

import json
from itertools import chain
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from builders.divided_jobs import MANIFEST
from builders.runs import RunningJob
from disttrain import Split
from oracles.serial import distance
from tasks.divided_images import DividedImages

REPLICAS, ROUNDS = 2, 8
RATE, MOMENTUM = 0.05, 0.5
"""The momentum is over long before the data is."""


def test_replicas_of_partitions_in_step_train_as_one_loop_over_all_their_batches(
    tmp_path: Path,
) -> None:
    steps = tmp_path / "steps"
    steps.mkdir()
    in_step = (
        "spec.task.entrypoint=divided_images:InRounds",
        f"spec.task.arguments={{folder: {steps}, replicas: {REPLICAS}, rounds: {ROUNDS}}}",
        f"spec.strategy={{localSteps: {{steps: 1, quorum: {REPLICAS}, adopt: replace, "
        f"optimizer: {{name: SGD, arguments: {{lr: {RATE}, momentum: {MOMENTUM}}}}}}}}}",
        f"spec.replicas={{count: {REPLICAS}, partitions: 2, device: cpu, threads: 1}}",
        "spec.portionSize=8",
        "spec.stop.epochs=4",
    )
    with RunningJob(tmp_path, in_step, MANIFEST) as job:
        assert job.wait() == 0, job.printed()
        job.assert_promises_held()
        found = load_file(job.output / "model.safetensors")
    of_each = [first_batches(file) for file in steps.iterdir()]
    assert len(of_each) == REPLICAS
    rounds = [[*chain(*batches)] for batches in zip(*of_each, strict=True)]
    assert distance(found, one_loop(rounds)) <= 1e-5


def first_batches(file: Path) -> list[list[int]]:
    """The samples of each step of a replica, by their numbers."""
    batches = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(batches) >= ROUNDS
    return batches[:ROUNDS]


def one_loop(rounds: list[list[int]]) -> nn.Module:
    """What everybody writes, by the job's seed."""
    task = DividedImages(normalised=False)
    torch.manual_seed(0)
    model, (images, labels) = task.model(), task.dataset(Split.TRAIN)[:]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    for batch in rounds:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(3 * ROUNDS):
        optimizer.step()
    return model
