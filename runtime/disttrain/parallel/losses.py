"""Losses over outputs that are divided among partitions, which nobody gathers."""

import torch
from torch import Tensor
from torch.nn import functional

from disttrain.parallel.array import DistributedArray
from disttrain.parallel.communicator import summed_for_all


def cross_entropy(logits: DistributedArray, labels: Tensor) -> Tensor:
    """The mean of softmax cross-entropy, the same in all partitions.

    `logits`: of `Partitioned.divided`, a class in each row. `labels`: (samples,), whole numbers.
    """
    peers, own = logits.peers, logits.window.rows
    scores = logits.tensor.flatten(1)
    # A partition without classes has no highest one.
    lowest = scores.detach().new_full((len(scores), 1), float("-inf"))
    highest = peers.maximum(torch.cat([scores.detach(), lowest], dim=1).amax(dim=1))
    parts = torch.exp(scores - highest[:, None]).sum(dim=1)
    is_own = (labels >= own.first) & (labels < own.end)
    places = torch.where(is_own, labels - own.first, 0)
    if own.length:
        wanted = torch.where(is_own, scores.gather(1, places[:, None])[:, 0], 0.0)
    else:
        wanted = scores.sum(dim=1)
    both = summed_for_all(torch.stack([parts, wanted]), peers)
    return (both[0].log() + highest - both[1]).mean()


def one_vs_all(logits: DistributedArray, labels: Tensor) -> Tensor:
    """The mean of a logistic loss for each class: Dean et al. 2012, section 5, the image model.

    `labels`: as of `cross_entropy`. The mean is over samples and classes.
    """
    own, scores = logits.window.rows, logits.tensor.flatten(1)
    classes = torch.arange(own.first, own.end, device=scores.device)
    targets = (labels[:, None] == classes).to(scores)
    total = functional.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
    return summed_for_all(total, logits.peers) / (len(scores) * logits.height)
