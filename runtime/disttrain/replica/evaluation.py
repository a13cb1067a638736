"""Measures a model on a split: in eval mode, without gradients, with sums over the samples."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from disttrain.replica.pipeline import read
from disttrain.replica.task_calls import Examples, TaskCalls

Placing = Callable[[Any], Any]


@dataclass(slots=True)
class Sums:
    """What was measured so far."""

    samples: int = 0
    loss: float = 0.0
    """Sum over samples of the batches' mean losses."""
    measures: dict[str, float] = field(default_factory=dict)

    @property
    def mean_loss(self) -> float | None:
        """Loss per sample; None of an empty split."""
        return self.loss / self.samples if self.samples else None

    def add(self, samples: int, loss: float, measures: dict[str, float]) -> None:
        """Add one batch."""
        self.samples += samples
        self.loss += loss * samples
        for name, value in measures.items():
            self.measures[name] = self.measures.get(name, 0.0) + value


def evaluate(
    task: TaskCalls, model: nn.Module, examples: Examples, batch_size: int, place: Placing
) -> Sums:
    """Sums over the whole split; `place` moves a batch to where the model computes.

    Leaves the model in the mode it was in. Raises TaskError.
    """
    sums = Sums()
    with _evaluating(model), torch.no_grad():
        for first in range(0, examples.count, batch_size):
            indices = list(range(first, min(first + batch_size, examples.count)))
            batch = place(task.collate(read(examples.dataset, indices)))
            sums.add(len(indices), task.loss_value(model, batch), task.measures(model, batch))
    return sums


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in training.items():
            module.training = mode
