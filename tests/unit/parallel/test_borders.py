"""A step sends what has to cross, once to each destination, and nothing else."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import nn

from builders.divided import divided
from disttrain.parallel import Grid, LocalContrastNorm2d, LocallyConnected2d, pricing
from disttrain.parallel.counting import counted
from disttrain.parallel.pricing import Machine
from oracles import borders

SAMPLE, SAMPLES = (3, 13, 16), 2
MACHINE = Machine(flops_per_second=50e9, bytes_per_second=1.25e8)


def convolutions() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
        *(nn.Conv2d(4, 5, (3, 5), padding=(0, 2)), nn.Tanh(), nn.AvgPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(5 * 4 * 7, 11), nn.Tanh(), nn.Linear(11, 6)),
    )


def dilated() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 2, 5, stride=2, padding=2),
        *(nn.Conv2d(2, 3, 3, padding=2, dilation=2), nn.MaxPool2d(2, ceil_mode=True)),
    )


def local_filters() -> nn.Sequential:
    return nn.Sequential(
        *(LocallyConnected2d(3, 2, 5, input_size=(13, 16), stride=2, block=2), nn.Tanh()),
        *(LocalContrastNorm2d((3, 5)), nn.MaxPool2d(3, 1, 1)),
        LocallyConnected2d(2, 4, 3, input_size=(10, 12), stride=3, padding=1, block=(2, 1)),
        *(LocalContrastNorm2d(3), nn.Flatten(), nn.Linear(4 * 8 * 4, 9)),
    )


def features() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(3 * 13 * 16, 13), nn.Tanh(), nn.Linear(13, 8), nn.Linear(8, 6))
    )


OWN_GRIDS = [
    (convolutions, (4, 1), {"2": (2, 2), "3": (2, 2), "5": (1, 2)}),
    (dilated, (1, 3), {"1": (2, 1), "2": (1, 1)}),
    (local_filters, (2, 2), {"0": (1, 3), "2": (2, 1), "4": (1, 2)}),
]


@pytest.mark.parametrize(("make", "grid", "own"), OWN_GRIDS)
def test_between_grids_crosses_what_places_look_at(
    make: Callable[[], nn.Sequential],
    grid: tuple[int, int],
    own: Mapping[str, tuple[int, int]],
) -> None:
    model, x = make(), torch.randn(SAMPLES, *SAMPLE)
    overrides = {name: f"{rows}x{columns}" for name, (rows, columns) in own.items()}
    wanted = borders.step(model, x, grid, own)

    found = divided(model, grid, x, torch.randn_like(model(x)), overrides, of_input=False)
    planned = counted(model, Grid(*grid), SAMPLE, SAMPLES, overrides)

    assert [each.messages for each in found.traffic] == [each.messages for each in wanted]
    assert [each.nbytes for each in found.traffic] == [4 * each.elements for each in wanted]
    step = pricing.step(planned, MACHINE)
    assert step.messages == sum(each.messages for each in wanted)
    assert step.nbytes == 4 * sum(each.elements for each in wanted)


@pytest.mark.parametrize("make", [convolutions, dilated, local_filters, features])
def test_a_step_sends_what_places_look_at(make: Callable[[], nn.Sequential]) -> None:
    model, x = make(), torch.randn(SAMPLES, *SAMPLE)
    weight = torch.randn_like(model(x))
    for grid in ((1, 2), (1, 3), (2, 2), (2, 3)):
        wanted = borders.step(model, x, grid)

        sent = divided(model, grid, x, weight, of_input=False).traffic
        planned = pricing.step(counted(model, Grid(*grid), SAMPLE, SAMPLES), MACHINE)

        assert [each.messages for each in sent] == [each.messages for each in wanted], grid
        assert [each.nbytes for each in sent] == [4 * each.elements for each in wanted], grid
        assert planned.messages == sum(each.messages for each in wanted)
        assert planned.nbytes == 4 * sum(each.elements for each in wanted)
        assert planned.nbytes > 0
