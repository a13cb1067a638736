"""Every layer in partitions beside the same layer in one process: outputs and all gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from builders.divided import BOUNDS, GRIDS, divided, furthest, undivided
from disttrain.parallel import Box, HashDropout, L2Pool2d, LocalContrastNorm2d, LocallyConnected2d
from disttrain.parallel.layers.windowed import Sliding, View, Windowed

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "convolution": lambda: nn.Conv2d(3, 4, 3, padding=1),
    "strided": lambda: nn.Conv2d(3, 4, (5, 3), stride=(2, 3), padding=(2, 1), bias=False),
    "dilated": lambda: nn.Conv2d(3, 6, 3, padding=2, dilation=2, groups=3),
    "same": lambda: nn.Conv2d(3, 2, 4, padding="same"),
    "valid": lambda: nn.Conv2d(3, 2, 4, padding="valid"),
    "max": lambda: nn.MaxPool2d(3, 2, 1),
    "max with the last rows": lambda: nn.MaxPool2d(3, 2, ceil_mode=True),
    "max dilated": lambda: nn.MaxPool2d(2, 1, dilation=3),
    "average": lambda: nn.AvgPool2d(3, 2, 1),
    "average of what is there": lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "average with the last rows": lambda: nn.AvgPool2d(4, 3, 1, ceil_mode=True),
    "average by another number": lambda: nn.AvgPool2d(2, divisor_override=3),
    "l2": lambda: L2Pool2d(3, 2, 1),
    "contrast": lambda: LocalContrastNorm2d((5, 3)),
    "local": lambda: LocallyConnected2d(3, 2, 4, input_size=(11, 13), stride=2, padding=1),
    "blocks": lambda: LocallyConnected2d(3, 2, 5, input_size=(11, 13), stride=2, block=(2, 3)),
    "batch norm": lambda: nn.BatchNorm2d(3),
    "activation": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.Tanh()),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 11 * 13, 7), nn.Linear(7, 6)),
}


def made(name: str, dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(4)
    # A layer before it, so that what crosses a border has a gradient.
    return nn.Sequential(nn.Conv2d(3, 3, 1, bias=False), LAYERS[name]()).to(dtype)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch copies then.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LAYERS)
def test_it_gives_what_one_process_does(name: str, dtype: torch.dtype) -> None:
    model = made(name, dtype)
    x = torch.randn(2, 3, 11, 13, dtype=dtype)
    weight = torch.randn_like(model(x))
    wanted = undivided(model, x, weight)

    for grid in GRIDS:
        found = divided(model, grid, x, weight)
        assert furthest(found, wanted) < BOUNDS[dtype], grid
    # The layer before it, and thus what goes by that one, on fewer partitions.
    found = divided(model, (2, 2), x, weight, {"0": "1x3"})
    assert furthest(found, wanted) < BOUNDS[dtype]


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """Of one layer, and how it is divided."""

    grid: tuple[int, int]
    size: tuple[int, int]
    """Of its input."""
    window: tuple[int, int, int]
    """Kernel, stride and padding."""
    block: tuple[int, int]
    ceil: bool
    features: int


DRAWN: dict[str, Callable[[Drawn], nn.Module]] = {
    "convolution": lambda it: nn.Conv2d(2, 3, *it.window),
    "max": lambda it: nn.MaxPool2d(*it.window, ceil_mode=it.ceil),
    "average": lambda it: nn.AvgPool2d(*it.window, ceil_mode=it.ceil),
    "average of what is there": lambda it: nn.AvgPool2d(
        *it.window, ceil_mode=it.ceil, count_include_pad=False
    ),
    "l2": lambda it: L2Pool2d(*it.window),
    "local": lambda it: LocallyConnected2d(
        *(2, 2, it.window[0]),
        input_size=it.size,
        stride=it.window[1],
        padding=it.window[2],
        block=it.block,
    ),
    "contrast": lambda it: LocalContrastNorm2d(2 * (it.window[0] // 2) + 1),
    "batch norm": lambda _: nn.BatchNorm2d(2),
    "linear": lambda it: nn.Sequential(
        nn.Flatten(), nn.Linear(2 * it.size[0] * it.size[1], it.features)
    ),
}


HAS_GRID = DRAWN.keys() - {"batch norm", "linear"}


@st.composite
def drawn(draw: st.DrawFn, *, may_ceil: bool, has_single_rows: bool) -> Drawn:
    """Such that each partition has some output; with single rows, one of them and of the input."""

    def number(least: int, most: int) -> int:
        return draw(st.integers(least, most))

    rows, columns = draw(st.sampled_from(GRIDS))
    kernel = number(1, 4)
    # A layer of fewer rows than its input would leave partitions without any.
    stride, padding = (
        (1, kernel // 2) if has_single_rows else (number(1, 3), number(0, kernel // 2))
    )
    # The layer before it has as many rows and columns as the input.
    size = rows if has_single_rows else number(max(3, rows), 9), number(max(3, columns), 9)
    ceil = may_ceil and draw(st.booleans())
    sliding = Sliding(kernel, stride, padding, padding, ceil=ceil)
    assume(kernel <= min(size) + 2 * padding)
    assume(sliding.length(size[0]) >= rows and sliding.length(size[1]) >= columns)
    return Drawn(
        grid=(rows, columns),
        size=size,
        window=(kernel, stride, padding),
        block=(number(1, 3), number(1, 2)),
        ceil=ceil,
        features=number(rows * columns, 7),
    )


@pytest.mark.parametrize("has_single_rows", [False, True], ids=["any rows", "single rows"])
@pytest.mark.parametrize("kind", DRAWN)
@settings(max_examples=3)
@given(data=st.data())
def test_it_does_so_for_any_shape(kind: str, data: st.DataObject, *, has_single_rows: bool) -> None:
    may_ceil = kind in {"max", "average", "average of what is there"}
    it = data.draw(drawn(may_ceil=may_ceil, has_single_rows=has_single_rows))
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(2, 2, 1), DRAWN[kind](it)).double()
    x = torch.randn(2, 2, *it.size, dtype=torch.float64)
    weight = torch.randn_like(model(x))
    smaller = [(r, c) for r, c in GRIDS if r * c <= math.prod(it.grid)]
    # What goes by the layer before it, or by output units, has no grid of its own.
    block = it.block if kind == "local" else (1, 1)
    units = weight.shape[-2] // block[0], weight.shape[-1] // block[1]
    sizes = {"0": it.size} | ({"1": units} if kind in HAS_GRID else {})
    overrides = {
        name: f"{rows}x{columns}"
        for name, (high, wide) in sizes.items()
        for rows, columns in [data.draw(st.sampled_from(smaller))]
        if rows <= high and columns <= wide
    }

    found = divided(model, it.grid, x, weight, overrides)

    assert furthest(found, undivided(model, x, weight)) < 1e-10


@pytest.mark.parametrize("block", [1, 2])
def test_a_local_layer_of_equal_filters_is_a_convolution(block: int) -> None:
    local = LocallyConnected2d(3, 4, 3, input_size=(8, 9), stride=2, block=block, bias=False)
    filters = torch.randn(4, block, block, 3, 3, 3)
    with torch.no_grad():
        every = local.filters()
        every.copy_(filters.flatten(0, 2).expand_as(every))
    x = torch.randn(2, 3, 8, 9)

    found = local(x)

    for row in range(block):
        for column in range(block):
            wanted = functional.conv2d(x, filters[:, row, column], stride=2)
            assert torch.allclose(found[:, :, row::block, column::block], wanted, atol=1e-5)


def test_pooling_by_squares_has_a_gradient_where_all_is_zero() -> None:
    x = torch.zeros(1, 1, 4, 4, requires_grad=True)

    L2Pool2d(2)(x).sum().backward()

    assert x.grad is not None
    assert torch.equal(x.grad, torch.zeros_like(x))


def test_contrast_normalisation_is_mean_and_deviation_of_what_is_there() -> None:
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    layer = LocalContrastNorm2d(3, eps=1e-4)

    def neighbours(of: Tensor, row: int, column: int) -> Tensor:
        rows = slice(max(0, row - 1), row + 2)
        return of[:, :, rows, max(0, column - 1) : column + 2].flatten(1)

    v = torch.empty_like(x)
    wanted = torch.empty_like(x)
    for row in range(5):
        for column in range(6):
            v[:, :, row, column] = x[:, :, row, column] - neighbours(x, row, column).mean(
                1, keepdim=True
            )
    for row in range(5):
        for column in range(6):
            square = neighbours(v, row, column).square().mean(1, keepdim=True)
            wanted[:, :, row, column] = v[:, :, row, column] / (square + 1e-4).sqrt()
    assert torch.allclose(layer(x), wanted)


@pytest.mark.parametrize("kernel", [2, (3, 4)])
def test_a_neighbourhood_has_a_middle(kernel: int | tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must be odd"):
        LocalContrastNorm2d(kernel)


def test_a_field_is_no_larger_than_the_input() -> None:
    with pytest.raises(ValueError, match="larger than the padded"):
        LocallyConnected2d(1, 1, 9, input_size=(8, 8))


@pytest.mark.parametrize("dtype", BOUNDS)
def test_a_dropped_element_is_the_same_in_every_division(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    dropout = HashDropout(0.4, seed=7, layer=2)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), dropout).to(dtype)
    x = torch.randn(2, 3, 7, 9, dtype=dtype)
    weight = torch.randn(2, 4, 7, 9, dtype=dtype)
    wanted = undivided(model, x, weight)

    for grid in GRIDS:
        assert furthest(divided(model, grid, x, weight), wanted) < BOUNDS[dtype]
    dropped = (wanted.output == 0).float().mean()
    assert 0.3 < float(dropped) < 0.5


def test_each_step_layer_sample_and_seed_drops_others() -> None:
    x = torch.ones(2, 50, 50)
    layer = HashDropout(0.5, seed=1)
    first, second = layer(x), layer(x)
    others = [HashDropout(0.5, seed=2)(x), HashDropout(0.5, seed=1, layer=1)(x)]

    assert float((first != 0).float().mean()) == pytest.approx(0.5, abs=0.03)
    for other in (second, *others):
        assert float((first == other).float().mean()) == pytest.approx(0.5, abs=0.03)
    assert float((first[0] == first[1]).float().mean()) == pytest.approx(0.5, abs=0.03)
    assert torch.equal(HashDropout(0.5, seed=1)(x), first)
    assert torch.equal(layer.eval()(x), x)
    with pytest.raises(ValueError, match="below 1"):
        HashDropout(1.0)


class Blur(Windowed):
    """A user's own layer: the mean of each element and its right neighbour, times a number."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.5))
        self._columns = Sliding(2, 1, 0, 1)

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        return height, self._columns.length(width)

    def input_window(self, output: Box) -> Box:
        return Box(output.rows, self._columns.needs(output.columns))

    def forward_window(self, x: Tensor, view: View) -> Tensor:
        assert x.shape[3] == view.output.columns.length + 1
        return self.factor * (x[..., :-1] + x[..., 1:]) / 2


def test_a_layer_of_ones_own_is_divided_too() -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 3), Blur()).double()
    x = torch.randn(2, 3, 7, 9, dtype=torch.float64)
    weight = torch.randn_like(model(x))
    wanted = undivided(model, x, weight)

    for grid in GRIDS:
        assert furthest(divided(model, grid, x, weight), wanted) < 1e-10
