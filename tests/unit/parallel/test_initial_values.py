"""Parts of a model that nobody holds begin with the values that the undivided model has."""

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from builders.divided import GRIDS, whole_of
from builders.partitions import in_partitions
from disttrain.parallel import CannotPartition, Grid, LocallyConnected2d, Partitioned, partition
from disttrain.parallel.communicator import Communicator
from disttrain.parallel.initial_values import RecordedModel
from disttrain.parallel.ways import Way

SEED, SAMPLE = 17, (3, 8, 9)


def scaled() -> nn.Linear:
    """Values that are made in several steps."""
    made = nn.Linear(72, 8)
    nn.init.orthogonal_(made.weight)
    with torch.no_grad():
        made.weight[2:4] *= 3.0
        made.bias.copy_(torch.randn(8).cumsum(0))
    return made


def a_model() -> nn.Module:
    conv = nn.Conv2d(3, 4, 3, padding=1)
    nn.init.kaiming_normal_(conv.weight)
    nn.init.normal_(conv.bias)  # type: ignore[arg-type]
    with torch.no_grad():
        conv.weight *= torch.tensor([1.0, 2.0, 3.0, 4.0]).view(4, 1, 1, 1)
    return nn.Sequential(
        OrderedDict(
            conv=conv,
            norm=nn.BatchNorm2d(4),
            local=LocallyConnected2d(4, 1, 3, input_size=(8, 9), padding=1),
            flat=nn.Flatten(),
            head=scaled(),
        )
    )


def drawn(make: Callable[[], nn.Module]) -> dict[str, Tensor]:
    torch.manual_seed(SEED)
    return {**make().state_dict()}


def test_the_recording_draws_the_numbers_of_the_constructor() -> None:
    found = {}
    for name, value in RecordedModel(a_model).values(SEED):
        found[name] = value.clone()
        torch.rand(3)  # Who takes them draws numbers, too.

    wanted = drawn(a_model)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize(
    ("grid", "overrides"), [*((each, {}) for each in GRIDS), ((2, 2), {"local": "1x3"})]
)
def test_every_division_begins_with_the_values_of_the_undivided_model(
    grid: tuple[int, int], overrides: dict[str, Way]
) -> None:
    recorded = RecordedModel(a_model)

    def one(peers: Communicator) -> Partitioned:
        made = partition(recorded.model, Grid(*grid), peers, SAMPLE, overrides)
        return made.to_empty(device="cpu")

    parts = in_partitions(grid[0] * grid[1], one)
    for part in parts:
        recorded.initialise(part, SEED)

    wanted = drawn(a_model)
    torch.manual_seed(SEED)
    found = whole_of(a_model(), parts, torch.detach)
    assert all(torch.equal(value, wanted[name]) for name, value in found.items())
    assert torch.equal(parts[-1].get_buffer("norm.running_var"), torch.ones(4))


def test_no_two_parameters_are_held_at_a_time() -> None:
    recorded = RecordedModel(lambda: nn.Sequential(*(nn.Linear(50, 50) for _ in range(9))))
    held: list[Tensor] = []

    for _, value in recorded.values(SEED):
        held.append(value)
        # The tensors of later parameters do not exist yet, nor do those of earlier ones.
        assert len({each.data_ptr() for each in held}) == len(held)
        held = held[-1:]
    assert all(parameter.is_meta for parameter in recorded.model.parameters())


def test_two_names_of_one_parameter_both_come() -> None:
    def make() -> nn.Module:
        first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        second.weight = first.weight
        return nn.Sequential(first, second)

    names = [name for name, _ in RecordedModel(make).values(SEED)]

    assert names == ["0.weight"]


class Reads(nn.Linear):
    def __init__(self) -> None:
        super().__init__(3, 3)
        self.scale = self.weight.detach().norm().item()


class Rejects(nn.Linear):
    """It draws until all values are near enough: how often depends on them."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        nn.init.trunc_normal_(self.weight)


class Known(nn.Linear):
    """It reads a number that it has brought itself."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        with torch.no_grad():
            self.weight.mul_(self.weight.new_tensor(0.5).item())


def test_a_number_that_the_constructor_brings_may_be_read() -> None:
    wanted = drawn(Known)

    found = {name: value.clone() for name, value in RecordedModel(Known).values(SEED)}

    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def on_one() -> nn.Module:
    with torch.device("cuda"):
        made = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2), nn.PReLU(device="cuda:0"))
        made.register_buffer("scale", torch.tensor([1.0, 2.0]))
    return made


@pytest.mark.parametrize(
    "make",
    [
        on_one,
        lambda: nn.Linear(2, 2, device="cuda"),
        lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to("cuda"),
        lambda: nn.Sequential(nn.Linear(2, 2, device="cpu"), nn.BatchNorm1d(2)),
        lambda: nn.Sequential(nn.Linear(2, 2, device="cuda")).cpu(),
    ],
)
def test_a_model_may_lie_on_any_device_as_long_as_it_is_one(make: Callable[[], nn.Module]) -> None:
    assert all(each.is_meta for each in RecordedModel(make).model.parameters())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="cuda")),
            "1.weight: it is on cuda:0, and 0.bias on cpu; move the whole model to one device",
        ),
        (
            lambda: nn.Sequential(nn.Linear(2, 2, device="meta"), nn.Linear(2, 2)),
            "1.weight: it is on cpu, and 0.bias on meta",
        ),
        (
            lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).to("cuda")),
            "1.weight: it is on cuda:0",
        ),
        (
            lambda: nn.Sequential(
                nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False, device="cuda:1")
            ),
            "1.running_mean: it is on cuda:1, and 0.bias on cpu",
        ),
    ],
)
def test_several_devices_are_refused_with_the_layers_name(
    make: Callable[[], nn.Module], said: str
) -> None:
    with pytest.raises(CannotPartition, match=said):
        RecordedModel(make)


class Brings(nn.Linear):
    def __init__(self, how: str) -> None:
        super().__init__(3, 3)
        values = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 3))).float()
        if how == "copied":
            with torch.no_grad():
                self.weight.copy_(values)
        else:
            self.weight = nn.Parameter(values)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Reads, "constructor reads the value of a tensor"),
        (Rejects, "constructor reads the value of a tensor"),
        (lambda: Brings("copied"), r"weight: aten\.copy_\.default takes values .* NumPy's"),
        (lambda: Brings("replaced"), "weight: .* takes values"),
    ],
)
def test_values_that_torch_does_not_draw_are_refused(
    make: Callable[[], nn.Module], said: str
) -> None:
    with pytest.raises(CannotPartition, match=said):
        RecordedModel(make)
