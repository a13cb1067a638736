"""Measures a model on a split: in eval mode, with sums over the samples."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from disttrain.replica.one_forward import one_forward
from disttrain.replica.pipeline import read
from disttrain.replica.task_calls import Examples, TaskCalls
from disttrain.task import checks

Placing = Callable[[Any], Any]


@dataclass(slots=True)
class Sums:
    """What was measured so far."""

    samples: int = 0
    loss: float = 0.0
    """Over everything that counts."""
    count: float = 0.0
    """What the loss is a sum of: samples, unless the task says something else."""
    measures: dict[str, float] = field(default_factory=dict)

    @property
    def mean_loss(self) -> float | None:
        return self.loss / self.count if self.count else None

    def add(self, samples: int, loss: tuple[float, float], measures: dict[str, float]) -> None:
        """Add one batch. `loss`: its sum and its count."""
        self.samples += samples
        self.loss += loss[0]
        self.count += loss[1]
        for name, value in measures.items():
            self.measures[name] = self.measures.get(name, 0.0) + value


def evaluate(
    task: TaskCalls, model: nn.Module, examples: Examples, batch_size: int, place: Placing
) -> Sums:
    """Sums over the whole split; `place` moves a batch to where the model computes.

    Leaves the model in the mode it was in. Raises TaskError, also when nothing counts in the loss.
    """
    sums = _sums(task, model, examples, batch_size, place)
    checks.check_split_count(sums.count, sums.samples)
    return sums


def _sums(
    task: TaskCalls, model: nn.Module, examples: Examples, batch_size: int, place: Placing
) -> Sums:
    sums = Sums()
    with _evaluating(model), torch.no_grad():
        for first in range(0, examples.count, batch_size):
            indices = list(range(first, min(first + batch_size, examples.count)))
            batch = place(task.collate(read(examples.dataset, indices)))
            with one_forward(model):
                loss = task.loss_sum(model, batch, len(indices))
                measures = task.measures(model, batch)
            sums.add(len(indices), loss, measures)
    return sums


def try_one_batch(
    task: TaskCalls, model: nn.Module, examples: Examples, batch_size: int, place: Placing
) -> Sums:
    """Evaluate the first batch, so that a mistake shows before the training. Raises TaskError.

    That nothing counts in this one is no mistake.
    """
    first = Examples(dataset=examples.dataset, count=min(batch_size, examples.count))
    return _sums(task, model, first, batch_size, place)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in training.items():
            module.training = mode
