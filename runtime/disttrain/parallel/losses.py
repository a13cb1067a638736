"""Losses of a model's output that nobody gathers where the model is divided.

A task says `cross_entropy(divided(model, x), labels)`, whether its model is divided or not.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from disttrain.parallel.array import DistributedArray
from disttrain.parallel.communicator import summed_for_all
from disttrain.parallel.layers.partitioned import Value
from disttrain.parallel.objective import JointForward, Objective, joint_forward
from disttrain.parallel.partitioned import Partitioned
from disttrain.parallel.windows import Span

IGNORED = -100
"""Label of a sample that has no class."""


class Output(NamedTuple):
    """Of a model whose parts other processes have, too: they compute it when a loss is taken."""

    model: JointForward
    x: Tensor


Logits = Tensor | DistributedArray | Output


def divided(model: nn.Module, x: Tensor) -> Logits:
    """A model's output, for the losses of this module alone: they take it wherever it lies.

    In a job whose replicas have partitions it is no tensor.
    """
    if isinstance(model, Partitioned):
        return model.divided(x)
    forward = joint_forward(model)
    return model(x) if forward is None else Output(forward, x)


def cross_entropy(logits: Logits, labels: Tensor) -> Tensor:
    """The mean of softmax cross-entropy, the same in all partitions.

    `logits`: of `divided`, (samples, classes) as a whole. `labels`: (samples,), whole numbers;
    samples with -100 do not count, as in torch. Raises ValueError.
    """
    return _loss(logits, labels, ClassLoss())


def one_vs_all(logits: Logits, labels: Tensor) -> Tensor:
    """The mean of a logistic loss for each class: Dean et al. 2012, section 5, the image model.

    `labels`: as of `cross_entropy`; of none of the classes is -100. The mean is over samples and
    classes.
    """
    return _loss(logits, labels, ClassLoss(one_vs_all=True))


@dataclass(frozen=True, kw_only=True)
class ClassLoss(Objective):
    """`cross_entropy`, or `one_vs_all`."""

    one_vs_all: bool = False

    def check(self, part: Partitioned, samples: int, labels: Tensor | None) -> None:
        shape, sizes = part.output, (part.output.channels, part.output.height, part.output.width)
        _checked((samples, shape.elements) if shape.is_flat else (samples, *sizes), labels)

    def losses(self, part: Partitioned, x: Value, labels: Tensor | None) -> Tensor:
        assert labels is not None  # noqa: S101  As `check` found.
        return self.of_array(part.through(x), labels.long())[None]

    def of_array(self, logits: DistributedArray, labels: Tensor) -> Tensor:
        """`labels` are as `cross_entropy` wants them."""
        own, scores = _own(logits), logits.tensor.flatten(1)
        if scores.element_size() < 4:
            # Sums over many classes are not for 16 bits.
            scores = scores.float()
        if not self.one_vs_all:
            return _cross_entropy(scores, labels, logits, own)
        total = _logistic(scores, labels, own.first)
        count = len(scores) * logits.height * logits.channels
        return summed_for_all(total, logits.peers) / count

    def of_whole(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.one_vs_all:
            return _logistic(logits, labels, 0) / logits.numel()
        return functional.cross_entropy(logits, labels, ignore_index=IGNORED)


def _loss(logits: Logits, labels: Tensor, objective: ClassLoss) -> Tensor:
    if isinstance(logits, Output):
        return logits.model.losses(objective, logits.x, labels)[0]
    if isinstance(logits, Tensor):
        return objective.of_whole(logits, _checked(tuple(logits.shape), labels))
    sizes = logits.channels, logits.height, logits.width
    has_classes = logits.width == 1 and 1 in {logits.channels, logits.height}
    classes = (logits.channels * logits.height,) if has_classes else sizes
    return objective.of_array(logits, _checked((len(logits.tensor), *classes), labels))


def _cross_entropy(scores: Tensor, labels: Tensor, logits: DistributedArray, own: Span) -> Tensor:
    peers = logits.peers
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


def _logistic(scores: Tensor, labels: Tensor, first: int) -> Tensor:
    """The sum over (samples, classes from `first` on)."""
    classes = torch.arange(first, first + scores.shape[1], device=scores.device)
    targets = (labels[:, None] == classes).to(scores)
    return functional.binary_cross_entropy_with_logits(scores, targets, reduction="sum")


def _own(logits: DistributedArray) -> Span:
    """The classes of this partition: in rows, or all of them in channels of one place."""
    if logits.channels == 1:
        return logits.window.rows
    return Span(0, logits.channels if logits.window.area else 0)


def _checked(logits: tuple[int, ...], labels: Tensor | None) -> Tensor:
    """The labels as torch wants them. `logits`: the shape of all of them."""
    if len(logits) != 2:
        message = (
            f"logits: must be (samples, classes), got {logits}; end the model with a Linear, or "
            "take the loss of its whole output"
        )
        raise ValueError(message)
    samples, classes = logits
    if labels is None or labels.shape != (samples,) or labels.is_floating_point():
        found = "none" if labels is None else f"{tuple(labels.shape)} of {labels.dtype}"
        message = f"labels: must be ({samples},), a whole number for each sample, got {found}"
        raise ValueError(message)
    labels = labels.long()
    wrong = labels[(labels != IGNORED) & ((labels < 0) | (labels >= classes))]
    if wrong.numel():
        message = f"labels: must be below {classes}, got {wrong[0].item()}"
        raise ValueError(message)
    return labels
