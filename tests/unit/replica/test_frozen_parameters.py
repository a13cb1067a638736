from collections.abc import Callable

import pytest
import torch
from torch import nn

from builders.networks import Unusual
from disttrain.replica import model_tensors
from disttrain.replica.gradient_check import FrozenParameters
from disttrain.task.errors import ModelError


def follow(model: Unusual) -> None:
    """As a teacher follows its student, in the way that leaves no trace in autograd."""
    model.frozen.weight.data.mul_(0.99).add_(0.01)


def replace(model: Unusual) -> None:
    model.frozen.weight.data = torch.ones(6, 6)


@pytest.mark.parametrize("change", [follow, replace])
def test_a_frozen_parameter_that_the_loss_changes_is_refused_by_name(
    change: Callable[[Unusual], None],
) -> None:
    model = Unusual()
    frozen = FrozenParameters(model_tensors.describe(model))
    frozen.begin()
    frozen.check()

    change(model)

    with pytest.raises(ModelError, match=r"'frozen\.weight', which is frozen.*register_buffer"):
        frozen.check_after(1)


def test_looks_become_rarer() -> None:
    model = Unusual()
    frozen = FrozenParameters(model_tensors.describe(model))
    frozen.begin()
    follow(model)

    frozen.check_after(3)
    with pytest.raises(ModelError):
        frozen.check_after(4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_frozen_parameters_of_every_type_are_watched(dtype: torch.dtype) -> None:
    model = Unusual()
    model.frozen.to(dtype)
    frozen = FrozenParameters(model_tensors.describe(model))
    frozen.begin()

    with torch.no_grad():
        model.frozen.bias[3] += 1.0

    with pytest.raises(ModelError, match=r"frozen\.bias"):
        frozen.check()


def test_a_model_without_frozen_parameters_has_nothing_to_check() -> None:
    model = nn.Linear(2, 2)
    frozen = FrozenParameters(model_tensors.describe(model))
    frozen.begin()
    model.weight.data.zero_()
    frozen.check_after(1)
