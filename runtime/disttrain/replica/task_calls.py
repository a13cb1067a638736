"""Calls the user's task, and checks what comes back where it enters."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from disttrain.job import defaults
from disttrain.job.spec import DistTrainJob
from disttrain.job.strategy_kind import Precision
from disttrain.replica import device, seeding
from disttrain.task import checks, loading, user_code
from disttrain.task.errors import LossError, UserCodeError
from disttrain.task.loss import BatchLoss, LossContext, numbers
from disttrain.task.task import InputPipeline, Split, Task

LossOfBatch = Callable[[Any, LossContext], BatchLoss]

_DOUBLE_DATA = (
    "The batch holds float64 tensors, and the model is float32: use .float() in the data set, or "
    "set spec.strategy.sandblaster.precision: float64, if that is the strategy"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Examples:
    """One split of the task's data."""

    dataset: Dataset[Any]
    count: int
    """Samples."""


class TaskCalls:
    """A task whose errors name the method, and whose values are checked.

    In double precision its models and batches are, whatever the task makes.
    """

    def __init__(self, task: Task, precision: Precision = Precision.FLOAT32) -> None:
        self._task = task
        self._is_double = precision is Precision.FLOAT64
        self._name = type(task).__name__
        self._examples: dict[Split, Examples] = {}
        self._wants_context = "context" in inspect.signature(task.loss).parameters
        self._latest = LossContext()
        self._has_count = False
        self._takes_derivatives = False

    def model(self, seed: int) -> nn.Module:
        """A new model with the seed's initial values, in training mode. Raises TaskError."""
        seeding.seed_model(seed)
        with user_code.running(f"{self._name}.model()"):
            model: object = self._task.model()
        checked = checks.check_model(model).train()
        return checked.double() if self._is_double else checked

    def examples(self, split: Split, batch_size: int) -> Examples:
        """The data of a split, made once. Raises TaskError."""
        if split not in self._examples:
            with user_code.running(f"{self._name}.dataset('{split}')"):
                dataset = self._task.dataset(split)
            count = checks.check_dataset(dataset, split, batch_size=batch_size)
            self._examples[split] = Examples(dataset=dataset, count=count)
        return self._examples[split]

    def input_pipeline(self) -> InputPipeline:
        with user_code.running(f"{self._name}.input_pipeline()"):
            return self._task.input_pipeline()

    def collate(self, samples: Any) -> Any:
        with user_code.running(f"{self._name}.collate()"):
            batch = self._task.collate(samples)
        return device.in_double_precision(batch) if self._is_double else batch

    def loss(self, model: nn.Module, batch: Any, context: LossContext) -> BatchLoss:
        """The loss of a training step. Raises TaskError."""
        self._latest = context
        with self._precision_in_doubt(batch), user_code.running(f"{self._name}.loss()"):
            loss = checks.check_loss(self._loss(model, batch, context))
        if self._has_count and loss.count is None:
            message = "Task.loss() returned a Loss before and a tensor now; let it be one of both"
            raise LossError(message)
        self._has_count = loss.count is not None
        reported = checks.check_reported(context.reported, loss.mean.device)
        return replace(loss, reported=reported)

    def loss_sum(self, model: nn.Module, batch: Any, samples: int) -> tuple[float, float]:
        """The loss of a batch in an evaluation, and what it is to be divided by. Raises TaskError.

        Without gradients, so that nothing is kept for them, unless the loss takes derivatives.
        """
        if not self._takes_derivatives:
            try:
                return self._loss_sum(model, batch, samples)
            except UserCodeError as error:
                if not isinstance(error.__cause__, RuntimeError):
                    raise
        with torch.enable_grad():
            found = self._loss_sum(model, batch, samples)
        self._takes_derivatives = True
        return found

    def _loss_sum(self, model: nn.Module, batch: Any, samples: int) -> tuple[float, float]:
        context = replace(self._latest, reported={})
        with user_code.running(f"{self._name}.loss()"):
            loss = checks.check_loss(self._loss(model, batch, context), of_a_step=False)
        if loss.sum is None or loss.count is None:
            (mean,) = numbers(loss.mean)
            return mean * samples, samples
        total, count = numbers(loss.sum, loss.count)
        checks.check_count(count)
        return total, count

    def _loss(self, model: nn.Module, batch: Any, context: LossContext) -> object:
        if self._wants_context:
            return self._task.loss(model, batch, context=context)  # type: ignore[call-arg]
        return self._task.loss(model, batch)

    def measures(self, model: nn.Module, batch: Any) -> dict[str, float]:
        with user_code.running(f"{self._name}.measure()"):
            return checks.check_measures(self._task.measure(model, batch))

    @contextmanager
    def _precision_in_doubt(self, batch: Any) -> Iterator[None]:
        """Add to an error that the batch is double and the model is not: torch names no remedy."""
        try:
            yield
        except UserCodeError as error:
            if self._is_double or not device.holds_double_precision(batch):
                raise
            message = f"{error}\n{_DOUBLE_DATA}"
            raise UserCodeError(message) from error.__cause__


def load(job: DistTrainJob, folder: Path) -> TaskCalls:
    """The task of a manifest. Raises TaskError."""
    reference = job.spec.task
    task = loading.load_task(reference.entrypoint, reference.arguments, folder)
    return TaskCalls(task, defaults.precision(job.spec))
