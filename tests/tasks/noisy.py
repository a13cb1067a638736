"""A data set that draws from the process's generator, as augmentation does."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

import disttrain

SAMPLES = 120


class Noise(Dataset[tuple[Tensor, int]]):
    """Points around one of two centres, others each time."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.randn(3) + index % 2, index % 2


class Noisy(disttrain.Task):
    """Two classes of noise."""

    def model(self) -> nn.Module:
        return nn.Linear(3, 2)

    def dataset(self, split: disttrain.Split) -> Dataset[Any]:  # noqa: ARG002  Both are noise.
        return Noise()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        values, labels = batch
        return functional.cross_entropy(model(values), labels)
