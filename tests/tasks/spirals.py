"""The README's spirals; a step may take time without work for a core."""

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

import disttrain

_SAMPLES = 6000


class Spirals(disttrain.Task):
    """On which of three spiral arms does a point lie?"""

    def __init__(self, step_seconds: float = 0.0) -> None:
        self._step_seconds = step_seconds

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3)
        )

    def dataset(self, split: disttrain.Split) -> Dataset[Any]:
        chance = torch.Generator().manual_seed(1 if split == "train" else 2)
        arm = torch.randint(3, (_SAMPLES,), generator=chance)
        radius, noise = (
            torch.rand(_SAMPLES, generator=chance),
            torch.randn(_SAMPLES, generator=chance),
        )
        angle = 2.1 * arm + 5 * radius + 0.2 * noise
        return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), arm)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        if model.training:
            time.sleep(self._step_seconds)
        return functional.cross_entropy(model(batch[0]), batch[1])

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        return {"accuracy": (model(batch[0]).argmax(dim=1) == batch[1]).sum()}
