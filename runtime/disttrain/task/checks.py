"""What is demanded of the values that a task returns. Pure: values in, an error or nothing out."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.utils.data import IterableDataset

from disttrain.job import terminal_text
from disttrain.job.stop import missing_measure
from disttrain.task import user_code
from disttrain.task.errors import DatasetError, LossError, MeasureError, ModelError
from disttrain.task.loss import BatchLoss, Loss
from disttrain.task.task import Split

MOST_REPORTED = 32
"""Scalars that a loss may report: they are in each heartbeat."""

MOST_SAMPLES = 2**33
"""Of a split. Each replica holds the order of the training samples, 8 bytes each: 64 GiB."""


def check_model(model: object, *, has_values: bool = True) -> nn.Module:
    """Return the model if it can be trained: float32 parameters with values, one of them trainable.

    `has_values`: else they come later, for which see `check_finite`. Raises ModelError with the
    name of the first parameter that is in the way.
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
        _check_parameter(name, parameter, has_values=has_values)
    _check_names(trainable, model)
    if has_values:
        _check_memory(trainable)
    _check_extra_state(model)
    return model


def _check_names(trainable: Mapping[str, nn.Parameter], model: nn.Module) -> None:
    """Refuse a wrapper of the whole model that would get into the names of the exported tensors."""
    if next(iter(trainable)).startswith("_orig_mod."):
        remedy = "call model.compile(), which changes no names, instead of torch.compile(model)"
    elif isinstance(model, nn.DataParallel):
        remedy = "return the model itself: replicas take the place of a DataParallel"
    else:
        return
    message = f"the model's parameters have the names of its wrapper, {next(iter(trainable))}; "
    raise ModelError(message + remedy)


def _check_memory(trainable: Mapping[str, nn.Parameter]) -> None:
    """Refuse two parameters over the same memory: in the flat vectors each has its own."""
    owners: dict[int, str] = {}
    for name, parameter in trainable.items():
        owner = owners.setdefault(parameter.data_ptr(), name)
        if parameter.numel() and owner != name:
            message = (
                f"the parameters '{owner}' and '{name}' share memory, which would end with the "
                "first step; let both names be one Parameter, or clone() one of them"
            )
            raise ModelError(message)


def _check_extra_state(model: nn.Module) -> None:
    """Refuse what PyTorch does not load from a file of tensors: the model would end unmeasured."""
    for name, module in model.named_modules():
        if type(module).set_extra_state is not nn.Module.set_extra_state:
            message = (
                f"the module '{name}' is a {type(module).__name__}, whose set_extra_state() wants "
                "more than tensors, which are all that replicas share and a model's file holds; "
                "keep its state in buffers, or leave set_extra_state() out"
            )
            raise ModelError(message)


def _check_parameter(name: str, parameter: nn.Parameter, *, has_values: bool) -> None:
    if is_lazy(parameter):
        message = (
            f"the parameter '{name}' has no shape yet; run one batch through the model in "
            "Task.model(), or use a layer that is told its sizes"
        )
    elif parameter.dtype is not torch.float32:
        message = (
            f"the parameter '{name}' is {type_name(parameter)}; parameters must be float32: "
            "use model.float(); strategy.downpour.precision: bfloat16 or torch.autocast inside the "
            "loss compute with less, strategy.sandblaster.precision: float64 with more"
        )
    elif not has_values:
        return
    elif parameter.is_meta:
        message = (
            f"the parameter '{name}' is on the meta device and has no values; build the model on "
            "the CPU"
        )
    else:
        check_finite(name, parameter)
        return
    raise ModelError(message)


def check_finite(name: str, parameter: Tensor) -> None:
    """Raises ModelError for a parameter, or a part of one, that begins with no number."""
    if not bool(torch.isfinite(parameter).all()):
        message = (
            f"the parameter '{name}' begins with a value that is not a finite number; see how "
            "Task.model() makes it"
        )
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
            f"spec.task.entrypoint: {what} must return a map-style data set with __len__ and "
            f"__getitem__, or a stream that extends disttrain.Sources, got {_kind(dataset)}{lack}"
        )
        raise DatasetError(message)
    with user_code.running(f"len({what})"):
        samples = len(dataset)
    if samples == 0:
        message = f"{what} is empty; check the paths among spec.task.arguments"
        raise DatasetError(message)
    if samples > MOST_SAMPLES:
        message = (
            f"{what} has {samples} samples, and a replica holds the order of at most "
            f"{MOST_SAMPLES}; let __len__ return what one epoch is to have"
        )
        raise DatasetError(message)
    if split is Split.TRAIN and samples < batch_size:
        message = (
            f"spec.batchSize: must be at most the number of training samples, {samples}, "
            f"got {batch_size}"
        )
        raise DatasetError(message)
    return samples


def check_loss(loss: object, *, of_a_step: bool = True) -> BatchLoss:
    """Return the loss if it is a scalar, and of a step a gradient can be taken of it.

    Raises LossError. Whether it is finite is the training loop's question.
    """
    if not isinstance(loss, Loss):
        return BatchLoss(_scalar(loss, of_a_step=of_a_step))
    total = _scalar(loss.sum, of_a_step=of_a_step)
    count = torch.as_tensor(loss.count, dtype=torch.float64, device=total.device).detach()
    if count.numel() != 1:
        message = f"Loss.count must be a scalar, got a tensor of shape {tuple(count.shape)}"
        raise LossError(message)
    count = count.reshape(())
    return BatchLoss(total / torch.where(count == 0, 1.0, count).to(total.dtype), total, count)


def check_count(count: float) -> None:
    """Refuse what a loss cannot be divided by. Raises LossError."""
    if not 0 <= count < math.inf:
        message = f"Loss.count must be a finite number of at least 0, got {count}"
        raise LossError(message)


def check_split_count(count: float, samples: int) -> None:
    """Refuse a loss over a whole split in which nothing counts. Raises LossError."""
    if samples and not count:
        message = (
            f"Loss.count was 0 in all batches of the split ({samples} samples), so nothing of it "
            "counts in the loss; see what Task.loss() makes the count of: a mask, weights"
        )
        raise LossError(message)


def check_reported(reported: Mapping[str, object], device: torch.device) -> dict[str, Tensor]:
    """Return what a loss reported as scalars on its device. Raises LossError."""
    if len(reported) > MOST_REPORTED:
        message = f"context.report() takes at most {MOST_REPORTED} names, got {len(reported)}"
        raise LossError(message)
    return {name: _reported(name, value, device) for name, value in reported.items()}


def _reported(name: str, value: object, device: torch.device) -> Tensor:
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return value.detach().reshape(())
    if isinstance(value, int | float):
        return torch.tensor(float(value), dtype=torch.float64, device=device)
    message = f"context.report({name}=...) must be given a scalar, got {_kind(value)}"
    raise LossError(message)


def _scalar(loss: object, *, of_a_step: bool) -> Tensor:
    if not isinstance(loss, Tensor):
        message = f"Task.loss() must return a tensor or a Loss, got {_kind(loss)}"
    elif loss.dim() != 0:
        message = (
            f"Task.loss() must return a scalar, got a tensor of shape {tuple(loss.shape)}; "
            "take the mean over the batch"
        )
    elif not loss.is_floating_point():
        message = f"Task.loss() must return a floating-point tensor, got {type_name(loss)}"
    elif of_a_step and not loss.requires_grad:
        message = (
            "Task.loss() returned a tensor without a gradient; compute it from the model's output, "
            "without detach(), item() or no_grad()"
        )
    else:
        return loss
    raise LossError(message)


def check_measures(measures: object) -> dict[str, float]:
    """Return the sums as numbers by name, with escapes in the names where they cannot be printed.

    A measure's name is shown in lines and sent as UTF-8. Raises MeasureError.
    """
    if not isinstance(measures, Mapping):
        message = f"Task.measure() must return a dict of sums by name, got {_kind(measures)}"
        raise MeasureError(message)
    named = ((terminal_text.escaped(str(name)), value) for name, value in measures.items())
    return {name: _sum(name, value) for name, value in named}


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


def type_name(tensor: Tensor) -> str:
    """The name of a tensor's element type as manifests and layouts write it: "float32"."""
    return str(tensor.dtype).removeprefix("torch.")


def require_measures(wanted: Mapping[str, str], measures: Mapping[str, float]) -> None:
    """Raise MeasureError unless all is measured that a job goes by; see `job.stop.measures`."""
    message = missing_measure(wanted, measures)
    if message is not None:
        raise MeasureError(message)
