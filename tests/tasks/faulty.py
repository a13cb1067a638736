"""Tasks with one mistake each, as people make them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import disttrain
from disttrain import Batch, InputPipeline, Split


class NotATask:
    """Forgot the base class."""


class Torn(Dataset[tuple[Tensor]]):
    """One of its samples cannot be read."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor]:
        return (self._read(f"{index}.png"),)

    def _read(self, name: str) -> Tensor:
        if name == "41.png":
            message = f"{name} is torn"
            raise OSError(message)
        return torch.ones(3)


class Irreversible(torch.autograd.Function):
    """Has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004  torch calls it
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        message = "nobody has worked it out"
        raise NotImplementedError(message)


class Faulty(disttrain.Task):
    """Does everything right but for what `fault` names."""

    def __init__(self, fault: str = "none", workers: int = 0) -> None:
        self.fault = fault
        self.workers = workers
        if fault == "constructor":
            self._read_settings()

    def _read_settings(self) -> None:
        message = "no file settings.toml"
        raise FileNotFoundError(message)

    def input_pipeline(self) -> InputPipeline:
        return InputPipeline(workers=self.workers)

    def model(self) -> nn.Module:
        model = nn.Linear(3, 2)
        if self.fault == "frozen model":
            model.requires_grad_(requires_grad=False)
        if self.fault == "frozen teacher":
            model.register_parameter("teacher", nn.Parameter(torch.zeros(3), requires_grad=False))
        return model.double() if self.fault == "double model" else model

    def dataset(self, split: Split) -> Dataset[Any]:
        if self.fault == "sample raises" and split == Split.TRAIN:
            return Torn()
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
        if self.fault == "frozen teacher":
            model.get_parameter("teacher").add_(1)
        if self.fault == "gradient raises":
            outputs = Irreversible.apply(outputs)
        return outputs.square().mean()
