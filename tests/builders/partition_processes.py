"""Partitions as processes with sockets between them, which train the same model."""

from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional

from builders import gloo_processes
from disttrain.parallel import Grid, LocallyConnected2d, partition

SAMPLE = (3, 9, 10)
STEPS = 10


def a_model() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.Tanh(),
        LocallyConnected2d(4, 2, 3, input_size=(9, 10), padding=1),
        nn.Flatten(),
        nn.Linear(180, 12),
        nn.Tanh(),
        nn.Linear(12, 6),
    ).double()


def train(model: nn.Module) -> None:
    torch.manual_seed(6)
    x, labels = torch.randn(4, *SAMPLE, dtype=torch.float64), torch.randint(0, 6, (4,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def one(rank: int, grid: tuple[int, int], folder: str) -> None:
    """In a process of its own: train, and leave every parameter with zeros where others have it."""
    torch.set_num_threads(1)
    size = grid[0] * grid[1]
    peers = gloo_processes.connected(rank, size, folder)
    model = a_model()
    part = partition(model, Grid(*grid), peers, SAMPLE)
    train(part)
    found: dict[str, Tensor] = {}
    own = dict(part.named_parameters())
    for name, index in part.pieces.items():
        found[name] = torch.zeros_like(model.get_parameter(name)).detach()
        if index is not None:
            found[name][index] = own[name].detach()
        elif rank == 0:
            found[name].copy_(own[name].detach())
    safetensors.torch.save_file(found, Path(folder, f"{rank}.safetensors"))
    gloo_processes.leave(peers)
