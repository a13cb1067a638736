"""What a step of a divided model costs: counted as it is sent, and of the shape of the papers."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from builders.partitions import in_partitions
from disttrain.parallel import (
    Grid,
    L2Pool2d,
    LocalContrastNorm2d,
    LocallyConnected2d,
    ReconstructionTarget,
    UnitFilters2d,
    partition,
    reconstruction_losses,
)
from disttrain.parallel.communicator import Communicator, Traffic
from disttrain.parallel.cost import Loss, Machine, Purpose, counted, slowest_of, square_grid

MACHINE = Machine(flops_per_second=50e9, bytes_per_second=1.25e8, jitter=0.1)
SAMPLE = (3, 12, 13)


def a_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.MaxPool2d(2),
        LocallyConnected2d(4, 2, 3, input_size=(6, 6), padding=1),
        LocalContrastNorm2d(3),
        nn.Flatten(),
        nn.Linear(72, 10),
        nn.Linear(10, 6),
    )


def two_stacks() -> nn.Sequential:
    return nn.Sequential(
        *(ReconstructionTarget(), UnitFilters2d(3, 2, 5, input_size=(13, 14), stride=2, block=2)),
        *(L2Pool2d(3, 1, 1), LocalContrastNorm2d(3)),
        *(ReconstructionTarget(), UnitFilters2d(2, 2, 4, input_size=(10, 10), stride=2, block=2)),
        L2Pool2d(3, 1, 1),
    )


@pytest.mark.parametrize("grid", [(1, 2), (2, 2), (2, 3)])
def test_messages_and_bytes_are_those_of_a_step(grid: tuple[int, int]) -> None:
    model, x = a_network(), torch.randn(5, *SAMPLE)
    labels = torch.randint(0, 6, (5,))

    def one(peers: Communicator) -> Traffic:
        made = partition(model, Grid(*grid), peers, SAMPLE)
        functional.cross_entropy(made(x), labels).backward()  # type: ignore[no-untyped-call]
        return peers.traffic

    sent = in_partitions(grid[0] * grid[1], one)

    step = counted(model, Grid(*grid), SAMPLE, 5).step(MACHINE)

    assert step.nbytes == sum(each.nbytes for each in sent) > 0
    assert step.messages == sum(each.messages for each in sent)


@pytest.mark.parametrize("grid", [(1, 2), (2, 2)])
def test_messages_of_a_loss_in_the_first_partition_are_those_of_a_step(
    grid: tuple[int, int],
) -> None:
    model, x = a_network(), torch.randn(5, *SAMPLE)

    def one(peers: Communicator) -> Traffic:
        made = partition(model, Grid(*grid), peers, SAMPLE)
        found = made.from_first(made.no_input(5, x.dtype) if peers.rank else x)
        found.sum().backward()  # type: ignore[no-untyped-call]
        return peers.traffic

    sent = in_partitions(grid[0] * grid[1], one)

    step = counted(model, Grid(*grid), SAMPLE, 5, loss=Loss.IN_FIRST).step(MACHINE)

    assert step.nbytes == sum(each.nbytes for each in sent) > 0
    assert step.messages == sum(each.messages for each in sent)


@pytest.mark.parametrize("grid", [(1, 2), (2, 2)])
def test_messages_of_an_objective_in_each_stack_are_those_of_a_step(grid: tuple[int, int]) -> None:
    model, sample = two_stacks(), (3, 13, 14)
    x = torch.randn(4, *sample)

    def one(peers: Communicator) -> Traffic:
        made = partition(model, Grid(*grid), peers, sample)
        total = torch.stack(reconstruction_losses(made, x)).sum()
        total.backward()  # type: ignore[no-untyped-call]
        return peers.traffic

    sent = in_partitions(grid[0] * grid[1], one)

    counts = counted(model, Grid(*grid), sample, 4, loss=Loss.OF_STACKS)

    step = counts.step(MACHINE)
    assert step.nbytes == sum(each.nbytes for each in sent) > 0
    assert step.messages == sum(each.messages for each in sent)
    assert [sum(layer.sums for layer in layers) for layers in counts.costs] == [
        each.sums for each in sent
    ]


def test_products_are_those_of_torchs_own_counter() -> None:
    model, x = two_stacks(), torch.randn(4, 3, 13, 14)
    counts = counted(model, Grid(1, 1), x.shape[1:], 4, loss=Loss.OF_STACKS)

    with FlopCounterMode(display=False) as counter:
        total = torch.stack(reconstruction_losses(model, x)).sum()
        forward = counter.get_total_flops()
        total.backward()  # type: ignore[no-untyped-call]

    assert counts.step(MACHINE, Purpose.INFERENCE).flops == forward > 0
    assert counts.step(MACHINE).flops == counter.get_total_flops()


def test_waiting_for_the_slowest_grows_with_the_partitions() -> None:
    model = a_network()

    def waiting(grid: Grid, jitter: float) -> float:
        machine = Machine(flops_per_second=1e6, bytes_per_second=1e9, jitter=jitter)
        step = counted(model, grid, SAMPLE, 8).step(machine)
        return step.waiting_seconds / step.seconds

    assert waiting(Grid(1, 1), 0.2) == waiting(Grid(2, 2), 0.0) == 0.0
    assert 0.0 < waiting(Grid(1, 2), 0.2) < waiting(Grid(2, 2), 0.2)
    assert slowest_of(2) == pytest.approx(0.56, abs=0.04)


@pytest.mark.parametrize(
    ("layer", "sums"),
    [
        (nn.BatchNorm2d(3, affine=False), 2),
        (nn.BatchNorm2d(3, momentum=None), 3),
        (nn.Conv2d(3, 2, 1), 1),
        (nn.Conv2d(3, 2, 1, bias=False), 1),
        (nn.MaxPool2d(2), 0),
    ],
)
def test_sums_over_all_partitions_take_their_time(layer: nn.Module, sums: int) -> None:
    machine = Machine(flops_per_second=1e30, bytes_per_second=1e30, latency_seconds=1.0)
    counts = counted(nn.Sequential(layer), Grid(1, 2), SAMPLE, 8, loss=Loss.OF_PARTS)

    # A ring of two has two messages; nothing of the input crosses.
    assert counts.step(machine).crossing_seconds == pytest.approx(2.0 * sums)


def test_the_largest_partition_counts() -> None:
    step = counted(a_network(), Grid(1, 2), SAMPLE, 8).step(MACHINE)

    tied = 4 * 3 * 9
    local, linear = 6 * 3 * 2 * 4 * 9 + 2 * 6 * 3, 5 * 72 + 5 + 3 * 10 + 3
    assert step.parameters == tied + local + linear


@pytest.mark.parametrize(("count", "grid"), [(1, (1, 1)), (6, (2, 3)), (7, (1, 7)), (81, (9, 9))])
def test_a_grid_is_as_square_as_it_can_be(count: int, grid: tuple[int, int]) -> None:
    assert square_grid(count) == Grid(*grid)


def test_memory_is_of_parameters_gradients_and_activations() -> None:
    model = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))

    counts = counted(model, Grid(1, 1), (6,), 3, loss=Loss.OF_PARTS)
    training, inference = (counts.step(MACHINE, purpose) for purpose in Purpose)

    assert training.memory_bytes == 4 * (2 * (24 + 8) + 3 * (4 + 4 + 2))
    assert inference.memory_bytes == 4 * (24 + 8 + 3 * (4 + 4))
    # The first layer needs no gradient of its input.
    assert inference.flops == 2 * 3 * (24 + 8)
    assert training.flops == 2 * 3 * (2 * 24 + 3 * 8)


def test_inference_sends_nothing_back_and_sums_nothing() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2))
    machine = Machine(flops_per_second=1e30, bytes_per_second=1e30, latency_seconds=1.0)

    counts = counted(model, Grid(1, 2), (3, 8, 8), 4, loss=Loss.OF_PARTS)

    step = counts.step(machine, Purpose.INFERENCE)
    assert step.messages == step.crossing_seconds == 0


def test_the_model_keeps_its_values() -> None:
    model = a_network()
    before = [parameter.clone() for parameter in model.parameters()]

    counted(model, Grid(1, 2), SAMPLE, 8)

    assert all(map(torch.equal, before, model.parameters()))
