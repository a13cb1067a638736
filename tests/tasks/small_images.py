"""A model that can be divided, and one that cannot."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

import disttrain
from disttrain import Split


class Small(disttrain.Task):
    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 10),
        )

    def dataset(self, split: Split) -> Dataset[Any]:
        del split
        return TensorDataset(torch.zeros(40, 1, 8, 8), torch.zeros(40, dtype=torch.long))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        images, labels = batch
        return functional.cross_entropy(model(images), labels)


class Odd(Small):
    """No nn.Sequential."""

    def model(self) -> nn.Module:
        return nn.Conv2d(1, 10, 8)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        images, labels = batch
        return functional.cross_entropy(model(images).flatten(1), labels)


class Pooled(Small):
    """Nothing in it is a product."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.BatchNorm2d(1), nn.MaxPool2d(2), nn.Flatten())

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        images, _ = batch
        found: Tensor = model(input=images).square().mean()
        return found


class Around(Small):
    """Its loss calls the layers, and not the model."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        images, labels = batch
        for layer in model.children():
            images = layer(images)
        return functional.cross_entropy(images, labels)


class Huge(Small):
    """4 TB of parameters."""

    def model(self) -> nn.Module:
        width = 1 << 20
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 10),
        )
