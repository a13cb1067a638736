"""The objective of a sparse autoencoder beside the same with dense matrices, and in partitions."""

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from builders.divided import BOUNDS, GRIDS, far, gradient, whole_of
from builders.partitions import in_partitions
from disttrain.parallel import (
    Grid,
    L2Pool2d,
    LocalContrastNorm2d,
    Partitioned,
    ReconstructionTarget,
    UnitFilters2d,
    partition,
    reconstruction_losses,
)
from disttrain.parallel.communicator import Communicator
from disttrain.parallel.ways import Way

SIZE = (3, 14, 13)
EPS = 1e-4


def stack(channels: int, size: tuple[int, int], kernel: int) -> nn.Sequential:
    filters = UnitFilters2d(channels, 2, kernel, input_size=size, stride=2, block=2)
    return nn.Sequential(
        ReconstructionTarget(0.7), filters, L2Pool2d(3, 1, 1, eps=EPS), LocalContrastNorm2d(3)
    )


def two_stacks() -> nn.Sequential:
    """The first one's fields do not reach the last column."""
    torch.manual_seed(3)
    return nn.Sequential(stack(3, (14, 13), 4), stack(2, (12, 10), 4)).double()


def batch() -> Tensor:
    torch.manual_seed(4)
    return torch.randn(4, *SIZE, dtype=torch.float64)


def dense(layer: UnitFilters2d, shape: tuple[int, int, int], weight: Tensor) -> Tensor:
    """W as a matrix (responses, inputs), place by place; rows in the order of a response."""
    blocks_down, blocks_right = weight.shape[:2]
    weight = weight.permute(0, 1, 2, 4, 5, 3).flatten(3)
    (high, wide), (down, right), (tall, broad) = layer.kernel_size, layer.stride, layer.block
    height, width = blocks_down * tall, blocks_right * broad
    rows = []
    for channel in range(layer.out_channels):
        for row in range(height):
            for column in range(width):
                neuron = (channel * tall + row % tall) * broad + column % broad
                filters = weight[row // tall, column // broad, neuron]
                top, left = row // tall * down, column // broad * right
                image = torch.zeros(shape, dtype=weight.dtype)
                image[:, top : top + high, left : left + wide] = 1.0
                spread = torch.zeros(shape, dtype=weight.dtype).flatten()
                places = image.flatten().nonzero()[:, 0]
                rows.append(spread.index_put((places,), filters / filters.square().sum().sqrt()))
    return torch.stack(rows)


def dense_losses(model: nn.Sequential, x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Equation 1 in matrices; `weights`: of which gradients are wanted."""
    found = []
    for part, weight in zip(model, weights, strict=True):
        assert isinstance(part, nn.Sequential)
        target, filters, _, contrast = part
        assert isinstance(target, ReconstructionTarget)
        assert isinstance(filters, UnitFilters2d)
        shape = x.shape[1], x.shape[2], x.shape[3]
        matrix = dense(filters, shape, weight)
        y = x.flatten(1) @ matrix.T
        errors = (target.alpha * (y @ matrix) - x.flatten(1)).square().sum(1)
        responses = y.view(len(x), filters.out_channels, *filters.output_size(*shape[1:]))
        square = nn.functional.pad(responses.square(), (1, 1, 1, 1))
        pools = square.unfold(2, 3, 1).unfold(3, 3, 1).sum((4, 5)).add(EPS).sqrt()
        found.append((errors + 0.1 * pools.flatten(1).sum(1)).mean())
        x = contrast(pools)
    return found


def alphas(model: nn.Sequential) -> list[Tensor]:
    return [each for name, each in model.named_parameters() if name.endswith("alpha")]


def weights_of(model: nn.Module) -> list[nn.Parameter]:
    return [each for name, each in model.named_parameters() if name.endswith("weight")]


def test_losses_and_gradients_are_those_of_dense_matrices() -> None:
    model, x = two_stacks(), batch()
    found = reconstruction_losses(model, x)
    parameters = [*weights_of(model), *alphas(model)]
    gradients = torch.autograd.grad(found[0] + found[1], parameters)

    wanted = dense_losses(model, x, weights_of(model))

    assert far(torch.stack(found), torch.stack(wanted)) < 1e-12
    for one, other in zip(
        gradients, torch.autograd.grad(wanted[0] + wanted[1], parameters), strict=True
    ):
        assert far(one, other) < 1e-10


def test_filters_have_unit_norm_whatever_their_parameter_is() -> None:
    model, x = two_stacks(), batch()
    before = [float(each.detach()) for each in reconstruction_losses(model, x)]
    with torch.no_grad():
        weights_of(model)[0].mul_(7.0)

    assert [float(each.detach()) for each in reconstruction_losses(model, x)] == pytest.approx(
        before
    )


def test_a_filter_s_gradient_is_at_a_right_angle_to_it() -> None:
    model, x = two_stacks(), batch()
    (weight, _) = weights_of(model)
    (found,) = torch.autograd.grad(reconstruction_losses(model, x, last=0)[0], [weight])

    along = (found * weight.detach()).flatten(3).sum(-1).abs().max()
    assert along < 1e-10 * found.norm() * weight.detach().norm()


def test_the_transpose_is_one() -> None:
    layer = UnitFilters2d(2, 3, (4, 3), input_size=(11, 12), stride=(3, 2), block=(2, 1)).double()
    x = torch.randn(5, 2, 11, 12, dtype=torch.float64)
    y = torch.randn_like(layer(x))

    there, back = (layer(x) * y).sum(), (x * layer.transposed(y)).sum()
    assert float(there.detach()) == pytest.approx(float(back.detach()))


@pytest.mark.parametrize("stack_number", [0, 1])
def test_a_stack_alone_has_its_loss_and_moves_no_other(stack_number: int) -> None:
    model, x = two_stacks(), batch()
    wanted = reconstruction_losses(model, x)[stack_number]

    (found,) = reconstruction_losses(model, x, first=stack_number, last=stack_number)
    found.backward()  # type: ignore[no-untyped-call]

    assert float(found.detach()) == pytest.approx(float(wanted.detach()))
    moved = [name for name, each in model.named_parameters() if each.grad is not None]
    assert moved == [f"{stack_number}.0.alpha", f"{stack_number}.1.weight"]


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(
    ("grid", "overrides"), [*((each, {}) for each in GRIDS), ((2, 2), {"0": "1x3", "1.1": "2x1"})]
)
@pytest.mark.parametrize(("first", "last"), [(0, None), (1, 1)])
def test_in_partitions_it_is_the_same(
    grid: tuple[int, int],
    overrides: dict[str, Way],
    first: int,
    last: int | None,
    dtype: torch.dtype,
) -> None:
    model, x, bound = two_stacks().to(dtype), batch().to(dtype), BOUNDS[dtype]
    total = torch.stack(reconstruction_losses(model, x, first=first, last=last)).sum()
    total.backward()  # type: ignore[no-untyped-call]

    def one(peers: Communicator) -> tuple[Tensor, Partitioned]:
        part = partition(copy.deepcopy(model), Grid(*grid), peers, SIZE, overrides)
        loss = torch.stack(reconstruction_losses(part, x, first=first, last=last)).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach(), part

    found = in_partitions(grid[0] * grid[1], one)

    assert all(far(loss, total) < bound for loss, _ in found)
    gradients = whole_of(model, [part for _, part in found], gradient)
    for name, parameter in model.named_parameters():
        assert far(gradients[name], gradient(parameter)) < bound, name


def test_a_model_without_stacks_is_refused() -> None:
    with pytest.raises(ValueError, match="no stack from 0 to None"):
        reconstruction_losses(nn.Sequential(nn.Tanh()), batch())
