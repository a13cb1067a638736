"""Scalars that a step needs on the host come together, and exactly; batches in double precision."""

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from disttrain.job.roles import Device
from disttrain.replica import task_calls
from disttrain.replica.errors import DeviceNotFound
from disttrain.task.loss import numbers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_numbers_are_to_the_bit_those_of_the_scalars(dtype: torch.dtype) -> None:
    scalars = (torch.rand(100, generator=torch.Generator().manual_seed(1)) * 1e3).to(dtype)

    assert numbers(*scalars) == [scalar.item() for scalar in scalars]


def test_scalars_of_several_types_and_with_a_gradient_come_together() -> None:
    squared_norm = torch.tensor(0.1)
    loss = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)

    assert numbers(squared_norm, loss) == [squared_norm.item(), 0.1]


def test_numbers_that_are_not_finite_stay_so() -> None:
    nan, infinite = numbers(torch.tensor(math.nan), torch.tensor(-math.inf))

    assert math.isnan(nan)
    assert infinite == -math.inf


class Sample(NamedTuple):
    inputs: Tensor
    label: Tensor


def test_floating_point_tensors_become_double_wherever_they_are() -> None:
    sample = Sample(torch.ones(2, dtype=torch.float16), torch.tensor([3]))
    batch = {"samples": [sample], "weights": (torch.ones(1),), "name": "a"}

    doubled = task_calls.in_double_precision(batch)

    assert doubled["samples"][0].inputs.dtype is torch.float64
    assert doubled["samples"][0].label.dtype is torch.int64
    assert doubled["weights"][0].dtype is torch.float64
    assert doubled["name"] == "a"
    assert isinstance(doubled["samples"][0], Sample)


def test_a_gpu_that_is_not_there_is_refused_by_field_and_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(DeviceNotFound, match=r"spec\.replicas\.device: cuda .* use auto"):
        task_calls.resolve_device(Device.CUDA)
    assert task_calls.resolve_device(Device.AUTO) == torch.device("cpu")
    assert task_calls.resolve_device(Device.CPU) == torch.device("cpu")


def test_a_gpu_is_taken_unless_the_cpu_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    assert task_calls.resolve_device(Device.CUDA) == torch.device("cuda")
    assert task_calls.resolve_device(Device.AUTO) == torch.device("cuda")
    assert task_calls.resolve_device(Device.CPU) == torch.device("cpu")
