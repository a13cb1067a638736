"""Which orders that go wrong are answered, and which end the replica."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils.data import Dataset

from disttrain.coordinator.protocol.orders import (
    Drain,
    Evaluate,
    LeaveWarmStart,
    OrderFailed,
    Upload,
)
from disttrain.coordinator.protocol.orders import Split as Told
from disttrain.replica.errors import ModelNotSupported
from disttrain.replica.replica import Orders
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.errors import ModelError, TaskError
from disttrain.task.task import Split, Task

FROZEN = ModelError("the loss changes the parameter 'teacher.weight', which is frozen")


def orders_that_raise(error: Exception, task: TaskCalls | None = None) -> Orders:
    def act(*_: object) -> Any:
        raise error

    training: Any = SimpleNamespace(now=SimpleNamespace(fetch_now=act, drain=act), next_stage=act)
    prepared: Any = SimpleNamespace(task=task, model=nn.Linear(1, 1), device=torch.device("cpu"))
    return Orders(prepared, training, act)


@pytest.mark.parametrize("order", [Drain(), LeaveWarmStart()])
def test_a_mistake_of_the_task_in_training_is_no_answer_but_the_end(order: Any) -> None:
    with pytest.raises(TaskError, match=r"'teacher\.weight'"):
        orders_that_raise(FROZEN).carry_out(order)


def test_what_else_goes_wrong_is_answered() -> None:
    answer = orders_that_raise(ModelNotSupported("no such type")).carry_out(Upload(shards=(0,)))

    assert answer == OrderFailed(message="no such type")


class Wider(Task):
    """Its model is not the one that was exported."""

    def model(self) -> nn.Module:
        return nn.Linear(2, 1)

    def dataset(self, split: Split) -> Dataset[Any]:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        raise NotImplementedError


def test_an_exported_model_that_does_not_fit_asks_whether_the_task_built_another_one(
    tmp_path: Path,
) -> None:
    file = tmp_path / "model.safetensors"
    safetensors.torch.save_file(nn.Linear(1, 1).state_dict(), file)
    orders = orders_that_raise(FROZEN, TaskCalls(Wider()))

    answer = orders.carry_out(Evaluate(split=Told.TEST, batch_size=1, model_file=str(file)))

    assert isinstance(answer, OrderFailed)
    assert "size mismatch for weight" in answer.message
    assert "did Task.model() build another model in this process?" in answer.message
    assert "spec.task.arguments" in answer.message
