"""Which commands that go wrong are answered, and which end the replica."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils.data import Dataset

from disttrain.coordinator.protocol.commands import (
    CommandFailed,
    Drain,
    Evaluate,
    LeaveWarmStart,
    Result,
    Upload,
)
from disttrain.coordinator.protocol.commands import Split as Told
from disttrain.groups.errors import GroupLost
from disttrain.replica import model_tensors
from disttrain.replica.errors import ModelNotSupported
from disttrain.replica.prepared import Prepared
from disttrain.replica.replica import Commands
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.errors import ModelError, TaskError
from disttrain.task.task import Split, Task

FROZEN = ModelError("the loss changes the parameter 'teacher.weight', which is frozen")


def commands_that_raise(error: Exception, task: TaskCalls | None = None) -> Commands:
    def act(*_: object) -> Any:
        raise error

    now = SimpleNamespace(measure=lambda evaluate: evaluate(act), drain=act)
    training: Any = SimpleNamespace(now=now, next_stage=act)
    model = nn.Linear(1, 1)
    nothing: Any = None
    prepared = Prepared(
        task=task or nothing,
        model=model,
        device=torch.device("cpu"),
        tensors=model_tensors.describe(model),
        train=nothing,
        test=nothing,
    )
    return Commands(prepared, training, act)


def answer_of(commands: Commands, command: Any) -> Result:
    answers: list[Result] = []
    commands.carry_out(command, answers.append)
    (answer,) = answers
    return answer


@pytest.mark.parametrize("command", [Drain(), LeaveWarmStart()])
def test_a_mistake_of_the_task_in_training_is_no_answer_but_the_end(command: Any) -> None:
    with pytest.raises(TaskError, match=r"'teacher\.weight'"):
        answer_of(commands_that_raise(FROZEN), command)


def test_what_else_goes_wrong_is_answered() -> None:
    answer = answer_of(commands_that_raise(ModelNotSupported("no such type")), Upload(shards=(0,)))

    assert answer == CommandFailed(message="no such type")


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
    commands = commands_that_raise(FROZEN, TaskCalls(Wider()))

    answer = answer_of(commands, Evaluate(split=Told.TEST, batch_size=1, model_file=str(file)))

    assert isinstance(answer, CommandFailed)
    assert "size mismatch for weight" in answer.message
    assert "did Task.model() build another model in this process?" in answer.message
    assert "spec.task.arguments" in answer.message


def test_a_group_that_is_lost_in_an_evaluation_is_no_answer_but_the_end() -> None:
    command = Evaluate(split=Told.TEST, batch_size=1, model_file=None)
    with pytest.raises(GroupLost):
        answer_of(commands_that_raise(GroupLost("a member has ended")), command)


def test_a_mistake_of_the_task_in_an_evaluation_is_an_answer() -> None:
    command = Evaluate(split=Told.TEST, batch_size=1, model_file=None)
    answer = answer_of(commands_that_raise(FROZEN), command)

    assert answer == CommandFailed(message=str(FROZEN))
