"""Layers that are divided over grids of their own."""

import copy
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from builders.divided import BOUNDS, divided, far, furthest, undivided
from builders.partitions import in_partitions
from disttrain.parallel import (
    Alone,
    CannotPartition,
    Grid,
    LocalContrastNorm2d,
    LocallyConnected2d,
    partition,
)
from disttrain.parallel.communicator import Communicator
from disttrain.parallel.ways import Way

SAMPLE = (3, 12, 13)


def a_model() -> nn.Sequential:
    torch.manual_seed(11)
    stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.LeakyReLU(0.1))
    return nn.Sequential(
        OrderedDict(
            stem=stem,
            pool=nn.MaxPool2d(2, ceil_mode=True),
            local=LocallyConnected2d(4, 2, 3, input_size=(6, 7), padding=1),
            contrast=LocalContrastNorm2d(3),
            flat=nn.Flatten(),
            hidden=nn.Linear(2 * 6 * 7, 11),
            act=nn.Tanh(),
            head=nn.Linear(11, 6),
        )
    ).double()


def images() -> Tensor:
    torch.manual_seed(12)
    return torch.randn(5, *SAMPLE, dtype=torch.float64)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(
    ("grid", "overrides"),
    [
        ((4, 1), {"pool": "2x2", "local": "2x2", "contrast": "2x2"}),
        ((2, 2), {"stem": "1x1"}),
        ((2, 2), {"local": "1x2", "hidden": "whole"}),
        ((1, 3), {"stem": "2x1", "pool": "1x1", "local": "1x2"}),
        ((2, 3), {"stem.0": "2x2", "pool": "6x1", "local": "1x1", "contrast": 1}),
    ],
)
def test_layers_have_grids_of_their_own(
    grid: tuple[int, int], overrides: Mapping[str, Way], dtype: torch.dtype
) -> None:
    model, x = a_model().to(dtype), images().to(dtype)
    weight = torch.randn(5, 6, dtype=dtype)

    found, wanted = divided(model, grid, x, weight, overrides), undivided(model, x, weight)

    # What batch normalisation subtracts again has no gradient but rounding.
    same = {"stem.0.bias": torch.zeros(1, dtype=dtype)}
    found, wanted = (
        replace(each, of_parameters={**each.of_parameters, **same}) for each in (found, wanted)
    )
    assert furthest(found, wanted) < BOUNDS[dtype]


def test_a_partition_without_a_window_has_no_filters_of_places() -> None:
    parts = in_partitions(
        3, lambda peers: partition(a_model(), Grid(1, 3), peers, SAMPLE, {"local": "1x2"})
    )

    assert [[name for name in part.pieces if "local" in name] for part in parts] == [
        *[["local.weight", "local.bias"]] * 2,
        [],
    ]
    # Filters that are the same everywhere are in all of them.
    assert all("stem.0.weight" in part.pieces for part in parts)


@pytest.mark.parametrize("trains", [True, False])
def test_a_layer_on_fewer_partitions_may_come_first(*, trains: bool) -> None:
    local = LocallyConnected2d(3, 2, 3, input_size=(12, 13)).requires_grad_(trains)
    model = nn.Sequential(local, nn.Conv2d(2, 2, 3, padding=1), nn.Tanh()).double()
    x = images()
    weight = torch.randn_like(model(x))
    for overrides in ({"0": "1x2"}, {"0": "1x1", "1": "3x1"}, {"0": "3x1", "1": "1x1"}):
        found = divided(model, (1, 4), x, weight, overrides, of_input=False)

        assert furthest(found, undivided(model, x, weight, of_input=False)) < 1e-10


def test_types_of_what_others_compute_are_known_in_a_region_of_autocast() -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Conv2d(2, 2, 3))
    x = torch.randn(4, *SAMPLE)

    def found(module: nn.Module) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y: Tensor = module(x)
        y.float().square().sum().backward()  # type: ignore[no-untyped-call]
        return y.detach().float()

    def one(peers: Communicator) -> Tensor:
        overrides: dict[str, Way] = {"0": "1x2"}
        return found(partition(copy.deepcopy(model), Grid(1, 3), peers, SAMPLE, overrides))

    wanted = found(copy.deepcopy(model))
    assert all(far(each, wanted) < 1e-2 for each in in_partitions(3, one))


REFUSED: list[tuple[str, nn.Module, dict[str, Way], str]] = [
    ("no grid", a_model(), {"pool": "0x1"}, "pool: '0x1' is none of .* no grid"),
    (
        "a grid of too many",
        a_model(),
        {"pool": "1x2"},
        "partitioning.pool: 1x2 are 2 partitions, and there are 1; take a smaller grid",
    ),
    ("a grid of features", a_model(), {"head": "1x1"}, "head: 1x1 is not possible"),
    (
        "a grid of features in a container",
        nn.Sequential(nn.Sequential(nn.Flatten(), nn.Linear(468, 2))),
        {"0": "1x1"},
        "partitioning.0.1: 1x1 is not possible for this layer",
    ),
    ("a grid of an activation", a_model(), {"stem.2": "1x1"}, "by what comes before"),
    ("a grid of statistics", a_model(), {"stem.1": "1x1"}, "by what comes before"),
    (
        "a grid of a layer that nobody knows",
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.Upsample(scale_factor=2)),
        {"1": "1x1"},
        "partitioning.1: 1x1 is not possible for this layer",
    ),
]


@pytest.mark.parametrize(
    ("model", "overrides", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_grid_that_cannot_be_is_refused_by_the_layers_name(
    model: nn.Module, overrides: dict[str, Way], said: str
) -> None:
    with pytest.raises(CannotPartition, match=said):
        partition(model, Grid(1, 1), Alone(), SAMPLE, overrides)
