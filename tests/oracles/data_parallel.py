"""The gradient that torch's DistributedDataParallel makes of a batch, in processes of its own."""

from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from tasks.proving import CLASSES, FEATURES, Plain

RANKS = 2
SAMPLES = 8


def model() -> nn.Module:
    torch.manual_seed(11)
    return Plain()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(12)
    values = torch.randn(SAMPLES, FEATURES, generator=draw)
    return values, torch.randint(CLASSES, (SAMPLES,), generator=draw)


def loss(of: nn.Module, rank: int) -> torch.Tensor:
    """The mean over the rank's half of the batch."""
    values, labels = (torch.chunk(each, RANKS)[rank] for each in batch())
    return nn.functional.cross_entropy(of(values), labels)


def write_gradient(rank: int, folder: str) -> None:
    """One process; the first one writes `gradient.pt`."""
    store = distributed.FileStore(str(Path(folder) / "store"), RANKS)  # type: ignore[attr-defined]
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    divided = DistributedDataParallel(model())
    loss(divided, rank).backward()  # type: ignore[no-untyped-call]
    if rank == 0:
        gradients = [each.grad.flatten() for each in divided.parameters() if each.grad is not None]
        torch.save(torch.cat(gradients), Path(folder) / "gradient.pt")
    distributed.barrier()
    distributed.destroy_process_group()
