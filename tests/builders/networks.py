"""Small models, one for each thing that a model may hold."""

import torch
from torch import Tensor, nn


def a_network() -> nn.Sequential:
    """Convolution and linear layers of odd sizes, so that no view is aligned by chance."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 5, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(5 * 36, 33),
        nn.Tanh(),
        nn.Linear(33, 7),
    )


def a_normalised_network() -> nn.Sequential:
    """With running statistics, and a batch counter."""
    torch.manual_seed(4)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.BatchNorm1d(9), nn.Linear(9, 7))


class Unusual(nn.Module):
    """Tied and frozen parameters, buffers of several types, one of them not persistent."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6, bias=False)
        self.frozen = nn.Linear(6, 6)
        self.frozen.requires_grad_(requires_grad=False)
        self.out = nn.Linear(4, 6)
        self.out.weight = self.embed.weight
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("counts", torch.tensor([3, 4], dtype=torch.int32))
        self.register_buffer("scale", torch.tensor(0.5, dtype=torch.float64))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.mask: Tensor
        self.counts: Tensor
        self.scale: Tensor

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.frozen(self.embed(x)) + self.out(x)
        return y * self.scale.float()
