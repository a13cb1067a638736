"""Sequences of different lengths in one batch: the loss is a mean over tokens, not over samples."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

import disttrain

LONGEST, FEATURES, CLASSES = 6, 5, 4
PADDING = -100


class Tokens(disttrain.Task):
    """Each sample has 1 to 6 tokens; the longer ones are harder."""

    def model(self) -> nn.Module:
        return nn.Linear(FEATURES, CLASSES)

    def dataset(self, split: disttrain.Split) -> Dataset[Any]:
        draw = torch.Generator().manual_seed(3 if split == "train" else 4)
        count = 240 if split == "train" else 90
        values = torch.randn(count, LONGEST, FEATURES, generator=draw)
        labels = values[..., :CLASSES].argmax(dim=2)
        lengths = torch.randint(1, LONGEST + 1, (count,), generator=draw)
        wrong = torch.randint(0, CLASSES, labels.shape, generator=draw)
        labels = torch.where(lengths[:, None] > LONGEST // 2, wrong, labels)
        padded = torch.arange(LONGEST) >= lengths[:, None]
        return TensorDataset(values, labels.masked_fill(padded, PADDING))

    def loss(  # type: ignore[override]  # A third parameter of this name is what a task may have.
        self, model: nn.Module, batch: Any, context: disttrain.LossContext
    ) -> disttrain.Loss:
        values, labels = batch
        logits = model(values).flatten(0, 1)
        total = functional.cross_entropy(logits, labels.flatten(), reduction="sum")
        squares = torch.stack([one.square().sum() for one in model.parameters()]).sum()
        count = (labels != PADDING).sum()
        context.report(squares=squares, tokens=count)
        return disttrain.Loss(sum=total + 1e-2 * squares * count, count=count)


def over_all(task: Tokens, model: nn.Module, split: str) -> Tensor:
    """The loss over a whole split, of all tokens alike."""
    values, labels = task.dataset(disttrain.Split(split)).tensors  # type: ignore[attr-defined]
    found = task.loss(model, (values, labels), disttrain.LossContext())
    return found.sum / found.count
