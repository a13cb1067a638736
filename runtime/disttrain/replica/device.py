"""Where and with which numbers a replica computes, and how a batch gets there."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from disttrain.job.roles import Device
from disttrain.replica.errors import DeviceNotFound


def resolve(wanted: Device) -> torch.device:
    """The device that the manifest means on this machine. Raises DeviceNotFound."""
    found = torch.cuda.is_available()
    if wanted is Device.CUDA and not found:
        message = "spec.replicas.device: cuda was asked for, but PyTorch finds no GPU; use auto"
        raise DeviceNotFound(message)
    return torch.device("cuda" if found and wanted is not Device.CPU else "cpu")


def mover(device: torch.device) -> Callable[[Any], Any]:
    if device.type == "cpu":
        return lambda batch: batch
    return lambda batch: move(batch, device)


def move(batch: Any, device: torch.device) -> Any:
    return _each_tensor(batch, lambda tensor: tensor.to(device, non_blocking=True))


def in_double_precision(batch: Any) -> Any:
    return _each_tensor(batch, lambda one: one.double() if one.is_floating_point() else one)


def holds_double_precision(batch: Any) -> bool:
    found: list[bool] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor.dtype is torch.float64)
        return tensor

    _each_tensor(batch, note)
    return any(found)


def _each_tensor(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, dict):
        return {name: _each_tensor(part, change) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_each_tensor(part, change) for part in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_each_tensor(part, change) for part in batch)
    return batch
