"""A small network with running statistics and dropout: buffers travel, and the model draws."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

import disttrain


class Normalised(disttrain.Task):
    """Which quadrant a point is in."""

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 4)
        )

    def dataset(self, split: disttrain.Split) -> Dataset[Any]:
        generator = torch.Generator().manual_seed(3 if split == "train" else 4)
        x = torch.randn(640, 16, generator=generator)
        return TensorDataset(x, (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long())

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1])
