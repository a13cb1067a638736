"""Serial training makes one update of the batches of each push of the run."""

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from builders import placements
from builders.jobs import a_job
from disttrain import Split, Task
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.job.roles import Device
from disttrain.replay.recording import Recording
from disttrain.replay.serial import SerialTraining
from disttrain.replica.task_calls import TaskCalls
from disttrain.replica.work import LostLeases, WorkItem
from disttrain.state.factors import Factors

RATE = 0.5
STARTED = 3.0


class Square(Task):
    """The mean of (w x)^2 over a batch of numbers x."""

    def model(self) -> nn.Module:
        model = nn.Linear(1, 1, bias=False)
        nn.init.constant_(model.weight, STARTED)
        return model

    def dataset(self, split: Split) -> Dataset[Any]:
        del split
        return cast("Dataset[Any]", [torch.tensor([number / 10]) for number in range(8)])

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        loss: Tensor = model(batch).square().mean()
        return loss


class Recorded:
    """As much of a recording as serial training asks for."""

    spec = a_job(
        f"spec.strategy.downpour.optimizer={{sgd: {{learningRate: {RATE}}}}}", "spec.batchSize=2"
    ).spec
    task = TaskCalls(Square())
    data = DataLedger(samples=8, portion_size=8, batch_size=2)
    device = Device.CPU
    replica_threads = shard_threads = 1
    chunk_bytes = 64
    seed = 0

    def __init__(self, rate_factor: float) -> None:
        self.placement = replace(
            placements.a_placement({placements.PARAMETERS: 1}),
            factors=(Factors(0, 1, rate_factor, 1.0),),
        )


def an_item(first: int) -> WorkItem:
    return WorkItem(1, 0, 0, first, first + 2, [first, first + 1])


def gradient(weight: float, item: WorkItem) -> float:
    return sum(2 * weight * (index / 10) ** 2 for index in item.indices) / len(item.indices)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_each_push_of_the_run_is_one_update_the_first_one_too(factor: float) -> None:
    order = [(an_item(0), an_item(2)), (an_item(4),), (an_item(6), an_item(0))]
    training = SerialTraining(cast("Recording", Recorded(factor)))

    training.run(order)

    weight = STARTED
    for items in order:
        weight -= RATE * factor * sum(gradient(weight, item) for item in items)
    (parameter,) = training.module.parameters()
    torch.testing.assert_close(parameter.item(), weight, rtol=1e-5, atol=0.0)
    assert training._downpour.report(LostLeases(frozenset)).pushes == len(order)
