"""Tasks with one mistake each, as people make them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import disttrain
from disttrain import Batch, Split


class NotATask:
    """Forgot the base class."""


class Faulty(disttrain.Task):
    """Does everything right but for what `fault` names."""

    def __init__(self, fault: str = "none") -> None:
        self.fault = fault
        if fault == "constructor":
            self._read_settings()

    def _read_settings(self) -> None:
        message = "no file settings.toml"
        raise FileNotFoundError(message)

    def model(self) -> nn.Module:
        model = nn.Linear(3, 2)
        if self.fault == "frozen model":
            model.requires_grad_(requires_grad=False)
        return model.double() if self.fault == "double model" else model

    def dataset(self, split: Split) -> Dataset[Any]:
        count = 0 if self.fault == "empty data" and split == Split.TRAIN else 64
        return TensorDataset(torch.ones(count, 3))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        outputs: Tensor = model(batch[0])
        if self.fault == "loss of a batch":
            return outputs.mean(1)
        if self.fault == "infinite loss":
            return outputs.mean() / 0.0
        if self.fault == "loss raises":
            message = f"cannot use a batch of {len(outputs)}"
            raise ValueError(message)
        return outputs.square().mean()
