"""What a step of a divided model costs: counted as it is sent, and of the shape of the papers."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from builders.partitions import in_partitions
from disttrain.parallel import Grid, L2Pool2d, LocalContrastNorm2d, LocallyConnected2d, partition
from disttrain.parallel.communicator import Communicator, Traffic
from disttrain.parallel.cost import Machine, PlannedStep, Purpose, plan, slowest_of, square_grid

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


def speech() -> nn.Sequential:
    """Dean et al. 2012: five fully connected layers, 42 million parameters."""
    layers: list[nn.Module] = [nn.Linear(440, 2560), nn.Sigmoid()]
    for _ in range(3):
        layers += [nn.Linear(2560, 2560), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Linear(2560, 8192))


def image(size: int = 200) -> nn.Sequential:
    """Three locally connected stages."""
    layers: list[nn.Module] = []
    channels = 3
    for _ in range(3):
        layers.append(
            LocallyConnected2d(
                channels, 8, 10, input_size=(size, size), stride=2, block=2, bias=False
            )
        )
        layers += [L2Pool2d(3, 1, 1), LocalContrastNorm2d(5)]
        channels, size = 8, 2 * ((size - 10) // 2 + 1)
    return nn.Sequential(*layers, nn.Flatten())


def gains(model: nn.Module, sample: tuple[int, ...], counts: tuple[int, ...]) -> dict[int, float]:
    with torch.device("meta"):
        steps = [
            plan(model, square_grid(count), MACHINE, sample, 96, gathers_output=False)
            for count in counts
        ]
    return {step.partitions: steps[0].seconds / step.seconds for step in steps}


@pytest.mark.parametrize("grid", [(1, 2), (2, 2), (2, 3)])
def test_messages_and_bytes_are_those_of_a_step(grid: tuple[int, int]) -> None:
    model, x = a_network(), torch.randn(5, *SAMPLE)
    labels = torch.randint(0, 6, (5,))

    def one(peers: Communicator) -> Traffic:
        made = partition(model, Grid(*grid), peers, SAMPLE)
        functional.cross_entropy(made(x), labels).backward()  # type: ignore[no-untyped-call]
        return peers.traffic

    sent = in_partitions(grid[0] * grid[1], one)

    step = plan(model, Grid(*grid), MACHINE, SAMPLE, 5)

    assert step.nbytes == sum(each.nbytes for each in sent) > 0
    assert step.messages == sum(each.messages for each in sent)


def test_a_fully_connected_model_gains_little_and_loses_again() -> None:
    found = gains(speech(), (440,), (1, 2, 4, 8, 16, 32, 64))

    best = max(found, key=lambda count: found[count])
    assert 4 <= best <= 32
    assert 1.5 < found[best] < 6.0
    assert found[64] < found[best]


def test_a_locally_connected_model_goes_on_gaining() -> None:
    with torch.device("meta"):
        model = image()
    found = gains(model, (3, 200, 200), (1, 4, 16, 36, 81))

    assert found[1] < found[4] < found[16] < found[36] < found[81]
    assert found[81] > 12.0
    assert found[81] / found[36] < 81 / 36


def test_waiting_for_the_slowest_grows_with_the_partitions() -> None:
    model = a_network()

    def waiting(grid: Grid, jitter: float) -> float:
        machine = Machine(flops_per_second=1e6, bytes_per_second=1e9, jitter=jitter)
        step: PlannedStep = plan(model, grid, machine, SAMPLE, 8)
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
    step = plan(nn.Sequential(layer), Grid(1, 2), machine, SAMPLE, 8, gathers_output=False)

    # A ring of two has two messages; nothing of the input crosses.
    assert step.crossing_seconds == pytest.approx(2.0 * sums)


def test_the_largest_partition_counts() -> None:
    step = plan(a_network(), Grid(1, 2), MACHINE, SAMPLE, 8)

    tied = 4 * 3 * 9
    local, linear = 6 * 3 * 2 * 4 * 9 + 2 * 6 * 3, 5 * 72 + 5 + 3 * 10 + 3
    assert step.parameters == tied + local + linear


@pytest.mark.parametrize(("count", "grid"), [(1, (1, 1)), (6, (2, 3)), (7, (1, 7)), (81, (9, 9))])
def test_a_grid_is_as_square_as_it_can_be(count: int, grid: tuple[int, int]) -> None:
    assert square_grid(count) == Grid(*grid)


def test_memory_is_of_parameters_gradients_and_activations() -> None:
    model = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))

    training = plan(model, Grid(1, 1), MACHINE, (6,), 3, gathers_output=False)
    inference = plan(
        *(model, Grid(1, 1), MACHINE, (6,), 3), gathers_output=False, purpose=Purpose.INFERENCE
    )

    assert training.memory_bytes == 4 * (2 * (24 + 8) + 3 * (4 + 4 + 2))
    assert inference.memory_bytes == 4 * (24 + 8 + 3 * (4 + 4))
    assert training.flops == 3 * inference.flops == 3 * 2 * 3 * (24 + 8)


def test_inference_sends_nothing_back_and_sums_nothing() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2))
    machine = Machine(flops_per_second=1e30, bytes_per_second=1e30, latency_seconds=1.0)

    step = plan(
        *(model, Grid(1, 2), machine, (3, 8, 8), 4), gathers_output=False, purpose=Purpose.INFERENCE
    )

    assert step.messages == step.crossing_seconds == 0


def test_the_model_keeps_its_values() -> None:
    model = a_network()
    before = [parameter.clone() for parameter in model.parameters()]

    plan(model, Grid(1, 2), MACHINE, SAMPLE, 8)

    assert all(map(torch.equal, before, model.parameters()))
