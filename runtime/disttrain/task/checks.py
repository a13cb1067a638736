"""What is demanded of the values that a task returns. Pure: values in, an error or nothing out."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.utils.data import IterableDataset

from disttrain.task import user_code
from disttrain.task.errors import DatasetError, LossError, MeasureError, ModelError
from disttrain.task.task import Split


def check_model(model: object) -> nn.Module:
    """Return the model if it can be trained: float32 parameters with values, one of them trainable.

    Raises ModelError with the name of the first parameter that is in the way.
    """
    if not isinstance(model, nn.Module):
        message = f"Task.model() must return a torch.nn.Module, got {_kind(model)}"
        raise ModelError(message)
    trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not trainable:
        frozen = sum(1 for _ in model.parameters())
        message = (
            f"the model {type(model).__name__} has no trainable parameter ({frozen} frozen); "
            "leave requires_grad true on what is to be trained"
        )
        raise ModelError(message)
    for name, parameter in trainable.items():
        _check_parameter(name, parameter)
    return model


def _check_parameter(name: str, parameter: nn.Parameter) -> None:
    if is_lazy(parameter):
        message = (
            f"the parameter '{name}' has no shape yet; run one batch through the model in "
            "Task.model(), or use a layer that is told its sizes"
        )
    elif parameter.dtype is not torch.float32:
        message = (
            f"the parameter '{name}' is {_dtype(parameter)}; parameters must be float32: "
            "use model.float(), and torch.autocast inside the loss for another precision "
            "(strategy.sandblaster.precision: float64 makes the model double by itself)"
        )
    elif parameter.is_meta:
        message = (
            f"the parameter '{name}' is on the meta device and has no values; build the model on "
            "the CPU"
        )
    elif not bool(torch.isfinite(parameter).all()):
        message = (
            f"the parameter '{name}' begins with a value that is not a finite number; see how "
            "Task.model() makes it"
        )
    else:
        return
    raise ModelError(message)


def check_sum_over_samples(model: nn.Module) -> None:
    """Refuse a model in training mode whose output for a sample depends on the rest of its batch.

    Then the loss over the data depends on how these are cut into portions, and no portion's
    gradient is a part of its gradient. Raises ModelError with the name of the module.
    """
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (module.training or not module.track_running_stats):
            message = (
                f"the module '{name}' is a {type(module).__name__}, whose output for a sample "
                "depends on the other samples of its portion; sandblaster needs a loss that is a "
                "mean over samples: use GroupNorm or LayerNorm, or a module whose train() leaves "
                "its BatchNorm in eval mode with the statistics that it has"
            )
            raise ModelError(message)


def check_dataset(dataset: Any, split: Split, *, batch_size: int) -> int:
    """Return the number of samples of a map-style data set that has some.

    The training split has to fill a batch. Raises DatasetError, or UserCodeError for `__len__`.
    """
    what = f"Task.dataset('{split}')"
    missing = [name for name in ("__len__", "__getitem__") if not hasattr(dataset, name)]
    if missing or isinstance(dataset, IterableDataset):
        lack = f" without {' and '.join(missing)}" if missing else ""
        message = (
            f"{what} must return a map-style data set with __len__ and __getitem__, "
            f"got {_kind(dataset)}{lack}"
        )
        raise DatasetError(message)
    with user_code.running(f"len({what})"):
        samples = len(dataset)
    if samples == 0:
        message = f"{what} is empty; check the paths among spec.task.arguments"
        raise DatasetError(message)
    if split is Split.TRAIN and samples < batch_size:
        message = (
            f"spec.batchSize: must be at most the number of training samples, {samples}, "
            f"got {batch_size}"
        )
        raise DatasetError(message)
    return samples


def check_loss(loss: object) -> Tensor:
    """Return the loss if a gradient can be taken of it. Raises LossError.

    Whether it is finite is the training loop's question.
    """
    if not isinstance(loss, Tensor):
        message = f"Task.loss() must return a tensor, got {_kind(loss)}"
    elif loss.dim() != 0:
        message = (
            f"Task.loss() must return a scalar, got a tensor of shape {tuple(loss.shape)}; "
            "take the mean over the batch"
        )
    elif not loss.is_floating_point():
        message = f"Task.loss() must return a floating-point tensor, got {_dtype(loss)}"
    elif not loss.requires_grad:
        message = (
            "Task.loss() returned a tensor without a gradient; compute it from the model's output, "
            "without detach(), item() or no_grad()"
        )
    else:
        return loss
    raise LossError(message)


def check_measures(measures: object) -> dict[str, float]:
    """Return the sums by name as numbers. Raises MeasureError."""
    if not isinstance(measures, Mapping):
        message = f"Task.measure() must return a dict of sums by name, got {_kind(measures)}"
        raise MeasureError(message)
    return {str(name): _sum(str(name), value) for name, value in measures.items()}


def _sum(name: str, value: object) -> float:
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return float(value)
    if isinstance(value, int | float):
        return float(value)
    seen = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else _kind(value)
    message = f"Task.measure()['{name}'] must be a scalar, the sum over the batch, got {seen}"
    raise MeasureError(message)


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
