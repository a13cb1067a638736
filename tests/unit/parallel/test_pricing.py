"""How long a batch takes a divided model on given machines."""

import pytest
from torch import nn

from disttrain.parallel import Grid, pricing
from disttrain.parallel.counting import Loss, counted
from disttrain.parallel.pricing import Machine, Purpose, slowest_of

MACHINE = Machine(flops_per_second=50e9, bytes_per_second=1.25e8, jitter=0.1)
SAMPLE = (3, 12, 13)


def a_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(144, 10),
        nn.Linear(10, 6),
    )


def test_waiting_for_the_slowest_grows_with_the_partitions() -> None:
    model = a_network()

    def waiting(grid: Grid, jitter: float) -> float:
        machine = Machine(flops_per_second=1e6, bytes_per_second=1e9, jitter=jitter)
        step = pricing.step(counted(model, grid, SAMPLE, 8), machine)
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
    assert pricing.step(counts, machine).crossing_seconds == pytest.approx(2.0 * sums)


def test_the_largest_partition_counts() -> None:
    step = pricing.step(counted(a_network(), Grid(1, 2), SAMPLE, 8), MACHINE)

    tied, linear = 4 * 3 * 9 + 4, 5 * 144 + 5 + 3 * 10 + 3
    assert step.parameters == tied + linear


def test_memory_is_of_parameters_gradients_and_activations() -> None:
    model = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))

    counts = counted(model, Grid(1, 1), (6,), 3, loss=Loss.OF_PARTS)
    training, inference = (pricing.step(counts, MACHINE, purpose) for purpose in Purpose)

    assert training.memory_bytes == 4 * (2 * (24 + 8) + 3 * (4 + 4 + 2))
    assert inference.memory_bytes == 4 * (24 + 8 + 3 * (4 + 4))
    # The first layer needs no gradient of its input.
    assert inference.flops == 2 * 3 * (24 + 8)
    assert training.flops == 2 * 3 * (2 * 24 + 3 * 8)


def test_inference_sends_nothing_back_and_sums_nothing() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2))
    machine = Machine(flops_per_second=1e30, bytes_per_second=1e30, latency_seconds=1.0)

    counts = counted(model, Grid(1, 2), (3, 8, 8), 4, loss=Loss.OF_PARTS)

    step = pricing.step(counts, machine, Purpose.INFERENCE)
    assert step.messages == step.crossing_seconds == 0
