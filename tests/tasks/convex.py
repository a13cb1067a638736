"""Softmax regression on made-up data: one minimum, small, and as slow as a test wants it."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

import disttrain

SAMPLES = 240


class Convex(disttrain.Task):
    """Which of four directions a point lies in; every tenth label is wrong."""

    def __init__(
        self,
        portion_seconds: float = 0.0,
        dropout: float = 0.0,
        noise: float = 0.0,
        penalty: float = 2e-2,
        hurry: str | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        """`in_order`: the data is in sources that are read in order.

        `hurry`: once this file is there, portions take no time.
        `penalty`: times all squares. A divided model's parameters cannot be read: then it is 0.
        """
        self._penalty = penalty
        self._portion_seconds = portion_seconds
        self._dropout = dropout
        self._noise = noise
        self._hurry = None if hurry is None else Path(hurry)
        self._in_order = in_order

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Dropout(self._dropout), nn.Linear(12, 4))

    def dataset(self, split: disttrain.Split) -> Dataset[Any]:
        generator = torch.Generator().manual_seed(3 if split == "train" else 4)
        inputs = torch.randn(SAMPLES, 12, generator=generator) * torch.linspace(0.5, 1.5, 12)
        directions = torch.randn(12, 4, generator=torch.Generator().manual_seed(5))
        labels = (inputs @ directions).argmax(dim=1)
        wrong = torch.arange(SAMPLES) % 10 == 0
        data = TensorDataset(inputs, torch.where(wrong, (labels + 1) % 4, labels))
        if self._in_order:
            return Halves(data)
        return Noisy(data, self._noise) if self._noise else data

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        if self._portion_seconds and not (self._hurry and self._hurry.exists()):
            time.sleep(self._portion_seconds)
        loss = functional.cross_entropy(model(batch[0]), batch[1])
        if not self._penalty:
            return loss
        squares = torch.stack([one.square().sum() for one in model.parameters()]).sum()
        return loss + self._penalty * squares

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        return {"accuracy": (model(batch[0]).argmax(dim=1) == batch[1]).sum()}


class Halves(disttrain.Sources):
    """The same points in two sources."""

    def __init__(self, data: TensorDataset) -> None:
        self._data = data

    def names(self) -> Sequence[str]:
        return ["first", "second"]

    def count(self, source: int) -> int:
        half = len(self._data) // 2
        return half if source == 0 else len(self._data) - half

    def read(self, source: int, first: int) -> Iterator[Any]:
        begin = source * self.count(0)
        return (self._data[begin + number] for number in range(first, self.count(source)))


class Noisy(Dataset[Any]):
    """Another point near the same one whenever it is asked."""

    def __init__(self, data: TensorDataset, noise: float) -> None:
        self._data = data
        self._noise = noise

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        point, label = self._data[index]
        return point + self._noise * torch.randn(12), label
