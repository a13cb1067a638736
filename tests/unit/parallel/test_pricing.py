"""How long a batch takes a divided model on given machines."""

import pytest
from torch import nn

from disttrain.parallel import Grid, pricing
from disttrain.parallel.counting import Counts, Loss, counted
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
    assert step.largest.parameters == tied + linear


def test_memory_is_of_parameters_gradients_and_activations() -> None:
    model = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))

    counts = counted(model, Grid(1, 1), (6,), 3, loss=Loss.OF_PARTS)
    training, inference = (pricing.step(counts, MACHINE, each).largest for each in Purpose)

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


def in_a_row(stages: int, slices: int) -> Counts:
    """Equal stages, each on a partition of its own, with a batch of 12 samples."""
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(stages)))
    places = {str(each): each for each in range(stages)}
    return counted(
        *(model, Grid(1, stages), (8,), 12, places), from_first=True, micro_batches=slices
    )


FLOPS = 2 * 12 * 8 * 8
"""Of one stage in forward, which in backward are twice as many but for the first one."""


@pytest.mark.parametrize(("stages", "slices"), [(2, 1), (3, 6), (4, 4), (3, 12)])
def test_stages_are_idle_while_the_slices_come_and_go(stages: int, slices: int) -> None:
    machine = Machine(flops_per_second=FLOPS, bytes_per_second=1e30, latency_seconds=0.0)

    step = pricing.step(in_a_row(stages, slices), machine, Purpose.INFERENCE)

    assert step.seconds == pytest.approx((stages + slices - 1) / slices)
    assert step.idle_seconds / step.seconds == pytest.approx((stages - 1) / (stages + slices - 1))


@pytest.mark.parametrize(
    ("latency", "exposed"),
    # Of four slices that take a quarter of a second: one message, or four less three slices.
    [(0.2, 0.2), (1.0, 4 * 1.0 - 3 * 0.25)],
)
def test_slices_travel_while_others_are_computed(latency: float, exposed: float) -> None:
    machine = Machine(flops_per_second=FLOPS, bytes_per_second=1e30, latency_seconds=latency)

    step = pricing.step(in_a_row(2, 4), machine, Purpose.INFERENCE)

    # The output goes back to the first one.
    assert step.crossing_seconds == pytest.approx(exposed + latency)


def test_backward_of_stages_is_as_forward_the_other_way() -> None:
    machine = Machine(
        flops_per_second=FLOPS, bytes_per_second=1e30, latency_seconds=0.0, jitter=0.1
    )

    step = pricing.step(in_a_row(3, 6), machine)

    # The first stage takes one second of backward, the others two: it ends a slice of its own after
    # the second one, which ends one of its own after the third.
    backward = 2.0 + 2 / 6 + 1 / 6
    assert step.seconds - step.waiting_seconds == pytest.approx((3 + 6 - 1) / 6 + backward)
    assert step.waiting_seconds == pytest.approx(0.1 * slowest_of(3) * 3.0)
    assert step.idle_seconds == pytest.approx(2 / 6 + 3 / 6)


def test_a_partition_alone_waits_for_nobody() -> None:
    counts = counted(nn.Sequential(nn.Linear(8, 8)), Grid(1, 2), (8,), 12, {"0": 1})

    assert pricing.step(counts, MACHINE).waiting_seconds == 0.0


def test_what_is_beside_layers_makes_a_step_longer() -> None:
    step = pricing.step(in_a_row(2, 2), MACHINE)

    longer = step.longer({"values": step.seconds, "pushes": 2 * step.seconds})

    assert longer.seconds == pytest.approx(4 * step.seconds)
    assert longer.shares["pushes"] == pytest.approx(0.5)
