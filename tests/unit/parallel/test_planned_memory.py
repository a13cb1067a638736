"""The plan's memory of a partition, beside what one holds between forward and backward."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from builders.partitions import in_partitions
from disttrain.parallel import Grid, partition, pricing
from disttrain.parallel.communicator import Communicator
from disttrain.parallel.counting import counted
from disttrain.parallel.pricing import Machine

SAMPLES = 16
MACHINE = Machine(flops_per_second=1e9, bytes_per_second=1e9)


class Held(NamedTuple):
    """Bytes."""

    parameters: int
    gradients: int
    activations: int
    """What backward needs, but for parameters and samples; and the output."""


def convolutions() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(32 * 16 * 16, 10)),
    )


def dense() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh()), nn.Linear(256, 16)
    )


def held(model: nn.Sequential, grid: Grid, x: Tensor) -> list[Held]:
    def one(peers: Communicator) -> Held:
        made = partition(model, grid, peers, x.shape[1:])
        kept: dict[int, Tensor] = {}

        def keep(tensor: Tensor) -> Tensor:
            # Several tensors may lie in the same memory, which is there once.
            kept[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor):
            y = keep(made(x))
        for each in (x, *made.parameters()):
            kept.pop(each.untyped_storage().data_ptr(), None)
        y.square().sum().backward()  # type: ignore[no-untyped-call]
        return Held(
            parameters=sum(each.nbytes for each in made.parameters()),
            gradients=sum(each.grad.nbytes for each in made.parameters() if each.grad is not None),
            activations=sum(each.untyped_storage().nbytes() for each in kept.values()),
        )

    return in_partitions(grid.size, one)


@pytest.mark.parametrize("grid", [Grid(1, 1), Grid(2, 2)], ids=["1x1", "2x2"])
@pytest.mark.parametrize(
    ("make", "sample"), [(convolutions, (3, 32, 32)), (dense, (64,))], ids=["convolutions", "dense"]
)
def test_a_partition_holds_no_more_than_is_planned_and_at_least_half(
    make: Callable[[], nn.Sequential], sample: tuple[int, ...], grid: Grid
) -> None:
    model = make()
    found = held(model, grid, torch.randn(SAMPLES, *sample))

    costs = pricing.step(counted(model, grid, sample, SAMPLES), MACHINE).costs

    for each, planned in zip(found, costs, strict=True):
        assert each.parameters == each.gradients == 4 * planned.parameters
        others = planned.memory_bytes - each.parameters - each.gradients
        # Autograd keeps one of a layer's output and its activation's, and the plan counts both.
        assert 0.5 <= each.activations / others <= 1.0
