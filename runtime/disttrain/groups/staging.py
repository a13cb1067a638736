"""By which memory the partitions of a replica exchange tensors. Pure."""

from enum import Enum

import torch


class Staging(Enum):
    """What gloo sends from, and receives into."""

    NONE = "the tensor's own memory"
    PINNED = "page-locked memory of the host, between which and the GPU tensors are copied"


def staging(device: torch.device) -> Staging:
    """Of tensors on a device. Raises ValueError for one that the host's memory cannot be read from.

    The devices of the other partitions do not matter: between two processes there is memory of the
    host alone. So it is with a GPU for each partition, too, where NCCL could be used. Nothing ends
    its operations while a partition that is stopped holds them up, and it has not been tried.
    """
    match device.type:
        case "cpu":
            return Staging.NONE
        case "cuda":
            return Staging.PINNED
    message = f"partitions exchange tensors on CPUs and CUDA GPUs, and one is on {device}"
    raise ValueError(message)
