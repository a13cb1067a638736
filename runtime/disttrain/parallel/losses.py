"""Losses over outputs that are divided among partitions, which nobody gathers."""

import torch
from torch import Tensor
from torch.nn import functional

from disttrain.parallel.array import DistributedArray
from disttrain.parallel.communicator import summed_for_all

IGNORED = -100
"""Label of a sample that has no class."""


def cross_entropy(logits: DistributedArray, labels: Tensor) -> Tensor:
    """The mean of softmax cross-entropy, the same in all partitions.

    `logits`: of `Partitioned.divided`, a class in each row. `labels`: (samples,), whole numbers;
    samples with -100 do not count, as in torch. Raises ValueError.
    """
    _check(logits, labels, ignored=IGNORED)
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
    losses = both[0].log() + highest - both[1]
    return losses[labels != IGNORED].mean()


def one_vs_all(logits: DistributedArray, labels: Tensor) -> Tensor:
    """The mean of a logistic loss for each class: Dean et al. 2012, section 5, the image model.

    `labels`: as of `cross_entropy`; of none of the classes is -100. The mean is over samples and
    classes.
    """
    _check(logits, labels, ignored=IGNORED)
    own, scores = logits.window.rows, logits.tensor.flatten(1)
    classes = torch.arange(own.first, own.end, device=scores.device)
    targets = (labels[:, None] == classes).to(scores)
    total = functional.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
    return summed_for_all(total, logits.peers) / (len(scores) * logits.height)


def _check(logits: DistributedArray, labels: Tensor, ignored: int) -> None:
    if logits.channels != 1 or logits.width != 1:
        message = (
            f"logits: must have a class in each row, got {logits.channels} channels of "
            f"{logits.height} x {logits.width}; end the model with a Linear, or take the loss of "
            "its whole output"
        )
        raise ValueError(message)
    wrong = labels[(labels != ignored) & ((labels < 0) | (labels >= logits.height))]
    if wrong.numel():
        message = f"labels: must be below {logits.height}, got {wrong[0].item()}"
        raise ValueError(message)
