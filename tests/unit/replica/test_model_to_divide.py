"""A task's model for partitions: the values of `Task.model()`, and nobody makes all of them."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from disttrain.job.roles import Replicas
from disttrain.job.strategy_kind import Precision
from disttrain.parallel.initial_values import lacks_values
from disttrain.replica.division import Division, Nobody
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.errors import ModelError, UserCodeError
from disttrain.task.task import Task

SEED, SAMPLE = 3, (12,)
CPU = torch.device("cpu")
REPLICAS = Replicas(given_partitions=2)


class Given(Task):
    """Whose model a test makes."""

    def __init__(self, make: Callable[[Any], nn.Module]) -> None:
        self._make = make

    def model(self) -> nn.Module:
        return self._make(self)

    def dataset(self, split: object) -> Any:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        raise NotImplementedError


def a_model(_: object = None) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(12, 10), nn.ReLU(), nn.BatchNorm1d(10), nn.Linear(10, 4))
    nn.init.orthogonal_(model.get_parameter("0.weight"))
    with torch.no_grad():
        model.get_parameter("3.weight").mul_(torch.linspace(0.5, 2.0, 10))
    return model


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.FLOAT64])
def test_each_part_has_the_values_of_the_whole_model(precision: Precision) -> None:
    task = TaskCalls(Given(a_model), precision)
    whole = task.model(SEED)
    model, initialise = task.model_to_divide(SEED)

    assert initialise is not None
    assert all(each.is_meta for each in [*model.parameters(), *model.buffers()])
    for rank in range(2):
        peers = Nobody(rank, 2)
        found = Division(model, REPLICAS, SAMPLE, CPU, initialise).part(peers).state_dict()
        wanted = Division(whole, REPLICAS, SAMPLE, CPU).part(peers).state_dict()
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


class Sharing(nn.Module):
    """Two parameters over the same memory."""

    def __init__(self) -> None:
        super().__init__()
        both = torch.zeros(8)
        self.first, self.second = nn.Parameter(both), nn.Parameter(both)


def of_numpy(_: object) -> nn.Module:
    model = a_model()
    with torch.no_grad():
        model.get_parameter("3.bias").copy_(torch.from_numpy(np.random.normal(size=4)))
    return model


def seeded(_: object) -> nn.Module:
    torch.manual_seed(11)
    return a_model()


def keeping(task: Any) -> nn.Module:
    task.weights = torch.ones(4)
    return a_model()


def with_a_tensor(_: object) -> nn.Module:
    model = a_model()
    model[0].scales = torch.ones(3)
    return model


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (of_numpy, "3.bias: .* takes values that torch did not draw"),
        (seeded, "constructor seeds torch's random numbers"),
        (keeping, r"Task\.model\(\) keeps tensors in the task: weights"),
        (with_a_tensor, "0: scales is a tensor, and neither parameter nor buffer"),
    ],
)
def test_whose_constructor_takes_other_values_is_made_whole(
    make: Callable[[Any], nn.Module], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = Given(make)
    wanted = TaskCalls(Given(make)).model(SEED)

    with caplog.at_level("INFO"):
        model, initialise = TaskCalls(given).model_to_divide(SEED)

    assert initialise is None
    torch.testing.assert_close(dict(model.state_dict()), dict(wanted.state_dict()), rtol=0, atol=0)
    (record,) = caplog.records
    assert record.message == "each process makes the whole model for its initial values"
    assert re.search(said, str(record.__dict__["disttrain_fields"]["reason"]))
    assert not any(isinstance(each, Tensor) and each.is_meta for each in vars(given).values())


@pytest.mark.parametrize("make", [a_model, of_numpy, seeded, keeping, with_a_tensor])
def test_nobody_makes_all_values_only_to_look_at_a_model(make: Callable[[Any], nn.Module]) -> None:
    made = []

    def noted(task: Any) -> nn.Module:
        made.append(make(task))
        return made[-1]

    found = TaskCalls(Given(noted)).model_without_values(SEED)

    assert (found is not None) is (make is a_model)
    assert len(made) <= 1
    assert all(lacks_values(parameter) for each in made for parameter in each.parameters())


def test_layers_on_several_devices_are_refused_before_anybody_makes_them() -> None:
    def make(_: object) -> nn.Module:
        return nn.Sequential(nn.Linear(12, 10), nn.Linear(10, 4, device="cuda"))

    said = r"Task\.model\(\): 1\.weight: it is on cuda:0, and 0\.bias on cpu; .*replicas\.device"
    with pytest.raises(ModelError, match=said):
        TaskCalls(Given(make)).model_without_values(SEED)
    # Who moves all of it to one device may do so; whether there is one, replicas see.
    TaskCalls(Given(lambda _: make(_).to("cuda"))).model_without_values(SEED)


def test_parameters_over_the_same_memory_are_refused_as_in_one_process() -> None:
    with pytest.raises(ModelError, match="'first' and 'second' share memory"):
        TaskCalls(Given(lambda _: Sharing())).model_to_divide(SEED)


def test_an_initial_value_that_is_no_number_is_refused_where_it_is_drawn() -> None:
    def make(_: object) -> nn.Module:
        model = a_model()
        nn.init.constant_(model.get_parameter("3.weight"), float("inf"))
        return model

    model, initialise = TaskCalls(Given(make)).model_to_divide(SEED)

    assert initialise is not None
    with pytest.raises(ModelError, match=r"'3\.weight' begins with a value that is not a finite"):
        Division(model, REPLICAS, SAMPLE, CPU, initialise).part(Nobody(0, 2))


def test_an_error_of_the_constructor_is_the_tasks() -> None:
    def make(_: object) -> nn.Module:
        message = "no such layer"
        raise KeyError(message)

    with pytest.raises(UserCodeError, match=r"Given\.model\(\) raised KeyError"):
        TaskCalls(Given(make)).model_to_divide(SEED)
