"""A replica's model that is cut between layers, beside the same model in one process."""

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from builders import partitions
from builders.divided_models import CPU, Group, assert_close, gradients, in_parts
from builders.ranks import thread_groups
from disttrain.job.roles import Replicas
from disttrain.job.spec import FrozenParameters
from disttrain.job.strategy_kind import Precision
from disttrain.replica.division import Division
from disttrain.replica.partitions import FollowingPartition
from disttrain.task.errors import ModelError

SAMPLE = (2, 7, 6)


class Block(nn.Module):
    """A layer that nobody knows, with layers and a buffer in it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(4, 4, 1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.norm(self.inner(x))
        return found


def a_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        Block(),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(168, 4),
    ).double()


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (2, {"whole_on": {"0": 0, "1": 1}, "micro_batches": 1}),
        (2, {"whole_on": {"0": 1, "1": 1, "4": 0}, "micro_batches": 1}),
        (3, {"whole_on": {"1": 2}}),
        (3, {"whole_on": {"1": 0, "2": 1, "4": 2}, "micro_batches": 1}),
    ],
)
def test_losses_gradients_and_buffers_are_those_of_one_process(
    count: int, said: dict[str, Any]
) -> None:
    model = a_model()
    alone = copy.deepcopy(model)
    with in_parts(model, count, SAMPLE, **said) as parts:
        for step in range(3):
            x = torch.randn(5, *SAMPLE, dtype=torch.float64, requires_grad=True)
            twin = x.detach().clone().requires_grad_()
            with parts.divided.computing(step):
                loss = parts.model(x).square().mean() + parts.model(x.flip(-1)).mean()
            loss.backward()
            wanted = alone(twin).square().mean() + alone(twin.flip(-1)).mean()
            wanted.backward()

            torch.testing.assert_close(loss, wanted, rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(x.grad, twin.grad, rtol=1e-9, atol=1e-11)
            assert_close(parts.gradients(), gradients(alone))
            parts.step(0.1)
            torch.optim.SGD(alone.parameters(), lr=0.1).step()
            alone.zero_grad()
            assert_close(parts.values(), alone.state_dict())


def test_layers_elsewhere_have_the_modes_that_the_task_gives_them() -> None:
    model = a_model()
    said: dict[str, Any] = {"whole_on": {"0": 0, "1": 1}, "micro_batches": 1}
    x = torch.randn(5, *SAMPLE).double()
    with in_parts(model, 2, SAMPLE, **said) as parts:
        for each in (parts.model, model):
            each.get_submodule("1").eval()
        with parts.divided.computing(0), torch.no_grad():
            torch.testing.assert_close(parts.model(x), model(x))
        parts.model.get_submodule("1.norm").train()
        with (
            parts.divided.computing(1),
            pytest.raises(
                ValueError, match=r"1 lies whole on partition 1, and its norm has another"
            ),
        ):
            parts.model(x)


def test_another_process_keeps_the_values_of_its_own_layers_alone() -> None:
    model = a_model()
    replicas = Replicas(given_partitions=2, whole_on={"0": 0, "1": 1, "4": 0}, micro_batches=1)
    division = Division(model, replicas, SAMPLE, CPU)
    meeting = partitions.Meeting(2)
    group = Group(thread_groups(2)[1], partitions.Thread(1, meeting))

    layout = division.layout(Precision.FLOAT64, {}, FrozenParameters.SHARED)
    following = FollowingPartition(division, group, layout)
    weights = [weakref.ref(each) for each in model.parameters()]
    own = dict(following.part.module.named_parameters())
    del model, division
    gc.collect()

    assert {name.split(".")[0] for name in own} == {"1"}
    assert not any(each() is not None for each in weights)


def test_what_cannot_lie_so_names_the_layer() -> None:
    replicas = Replicas(given_partitions=2, whole_on={"0": 0, "1": 1})
    with pytest.raises(ModelError, match=r"1: a BatchNorm2d has statistics of a whole batch"):
        Division(a_model(), replicas, SAMPLE, CPU).planned(0)
