"""How a shard's copy of the model's buffers follows the replicas'. In place, one run at a time."""

import torch
from torch import Tensor


def merge(present: Tensor, sent: Tensor, live_replicas: int) -> None:
    """Move `present` towards what a replica sent.

    Floating point: by 1 / live replicas, so that each of them counts alike; one alone is copied
    exactly. Whole numbers are counters: the maximum.
    """
    if not present.is_floating_point():
        torch.maximum(present, sent, out=present)
    elif live_replicas <= 1:
        present.copy_(sent)
    else:
        present.lerp_(sent, 1.0 / live_replicas)
