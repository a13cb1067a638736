"""Products of fields, whatever they are computed with, beside torch's own."""

from unittest import mock

import pytest
import torch
from torch.nn import functional

from disttrain.parallel import LocallyConnected2d, UnitFilters2d
from disttrain.parallel.layers import fields
from disttrain.parallel.layers.fields import Fields

KERNELS = [((3, 2), (2, 1)), ((4, 5), (3, 2)), ((2, 2), (3, 4)), ((1, 1), (1, 1)), ((5, 4), (1, 4))]


@pytest.mark.parametrize("in_place", [True, False], ids=["where they lie", "side by side"])
@pytest.mark.parametrize(("kernel", "stride"), KERNELS)
def test_products_and_gradients_are_those_of_unfolded_images(
    kernel: tuple[int, int], stride: tuple[int, int], *, in_place: bool
) -> None:
    torch.manual_seed(2)
    layer = LocallyConnected2d(3, 4, kernel, input_size=(9, 11), stride=stride, bias=False)
    layer.double()
    x = torch.randn(5, 3, 9, 11, dtype=torch.float64, requires_grad=True)
    columns = functional.unfold(x, kernel, stride=stride)
    usual = layer.filters().flatten(3).flatten(0, 1)
    wanted = torch.einsum("lof,nfl->nol", usual, columns)
    weight = torch.randn_like(wanted)
    gradients = torch.autograd.grad((wanted * weight).sum(), (x, layer.weight))

    with mock.patch.object(fields, "_read_where_they_lie", return_value=in_place):
        found = layer(x).flatten(2)
        own = torch.autograd.grad((found * weight).sum(), (x, layer.weight))

    assert torch.allclose(found, wanted, atol=1e-12)
    for one, other in zip(own, gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("in_place", [True, False], ids=["where they lie", "side by side"])
def test_the_transpose_has_the_gradients_of_one(*, in_place: bool) -> None:
    torch.manual_seed(2)
    where = Fields((3, 4), (2, 1), 8, 9)
    weight = torch.randn(3, 6, 2, 4 * 3 * 3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(3, 6, 2, 2, dtype=torch.float64, requires_grad=True)

    with mock.patch.object(fields, "_read_where_they_lie", return_value=in_place):
        assert torch.autograd.gradcheck(lambda w, y: fields.transposed(w, y, where), (weight, y))


@pytest.mark.parametrize("kind", [LocallyConnected2d, UnitFilters2d])
def test_a_batch_without_samples_has_an_output(kind: type[LocallyConnected2d]) -> None:
    layer = kind(3, 4, 3, input_size=(8, 9), block=(2, 1))
    x = torch.zeros(0, 3, 8, 9, requires_grad=True)
    layer(x).sum().backward()
    assert layer(x).shape == (0, 4, 12, 7)
    assert x.grad is not None
    assert layer.weight.grad is not None
    assert not layer.weight.grad.any()


@pytest.mark.parametrize("kind", [LocallyConnected2d, UnitFilters2d])
def test_a_gradient_has_a_gradient(kind: type[LocallyConnected2d]) -> None:
    torch.manual_seed(2)
    layer = kind(2, 2, (2, 3), input_size=(4, 5), stride=(2, 1)).double()
    x = torch.randn(2, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(layer, (x,))


def test_a_kernel_lies_column_by_column_in_the_weight() -> None:
    """Files have it so: who changes it has to change its shape, too."""
    layer = LocallyConnected2d(2, 1, (3, 4), input_size=(3, 4), bias=False)
    assert layer.weight.shape == (1, 1, 1, 4, 2, 3)
    x = torch.zeros(1, 2, 3, 4)
    x[0, 1, 2, 0] = 1.0
    assert layer(x).item() == layer.weight[0, 0, 0, 0, 1, 2].item()
    assert layer.filters()[0, 0, 0, 1, 2, 0] == layer.weight[0, 0, 0, 0, 1, 2]


def test_a_region_of_autocast_leaves_doubles_alone() -> None:
    layer = LocallyConnected2d(3, 4, 3, input_size=(9, 11)).double()
    x = torch.randn(5, 3, 9, 11, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x)
    assert torch.equal(found, layer(x))


@pytest.mark.parametrize("kind", [LocallyConnected2d, UnitFilters2d])
def test_a_region_of_autocast_has_products_in_its_type(kind: type[LocallyConnected2d]) -> None:
    torch.manual_seed(2)
    layer = kind(3, 4, 3, input_size=(9, 11))
    x = torch.randn(5, 3, 9, 11, requires_grad=True)
    wanted = torch.autograd.grad(layer(x).square().sum(), (x, layer.weight))

    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x)
        assert fields.responses(
            layer.weight.flatten(3), x, Fields((3, 3), (1, 1), 9, 11)
        ).dtype == (torch.bfloat16)
    own = torch.autograd.grad(found.float().square().sum(), (x, layer.weight))

    for one, other in zip(own, wanted, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.02 * other.norm()
