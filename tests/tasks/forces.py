"""A potential that is trained by its slopes alone, as networks for forces are."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import disttrain


class Forces(disttrain.Task):
    """The potential of a spring in two dimensions, of which only forces are known."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def dataset(self, split: disttrain.Split) -> Dataset[Any]:
        generator = torch.Generator().manual_seed(1 if split == "train" else 2)
        places = torch.randn(64, 2, generator=generator)
        return TensorDataset(places, -places)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        places = batch[0].requires_grad_()
        (slopes,) = torch.autograd.grad(model(places).sum(), places, create_graph=True)
        loss: Tensor = (slopes + batch[1]).square().mean()
        return loss
