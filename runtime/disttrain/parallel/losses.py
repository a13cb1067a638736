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
from disttrain.parallel.objective import Objective, Together, together
from disttrain.parallel.partitioned import Partitioned, Shape
from disttrain.parallel.windows import Span

IGNORED = -100
"""Label of a sample that has no class."""


class Output(NamedTuple):
    """Of a model whose parts other processes have, too: they compute it when a loss is taken."""

    model: Together
    x: Tensor


Logits = Tensor | DistributedArray | Output


def divided(model: nn.Module, x: Tensor) -> Logits:
    """A model's output for the losses of this module, which take it wherever it lies."""
    if isinstance(model, Partitioned):
        return model.divided(x)
    found = together(model)
    return model(x) if found is None else Output(found, x)


def cross_entropy(logits: Logits, labels: Tensor) -> Tensor:
    """The mean of softmax cross-entropy, the same in all partitions.

    `logits`: of `divided`, (samples, classes) as a whole. `labels`: (samples,), whole numbers;
    samples with -100 do not count, as in torch. Raises ValueError.
    """
    if isinstance(logits, Output):
        return logits.model.losses(OfClasses(), logits.x, labels)[0]
    if isinstance(logits, Tensor):
        labels = _checked(logits.shape, labels)
        return functional.cross_entropy(logits, labels, ignore_index=IGNORED)
    labels = _checked(_shape(len(logits.tensor), logits), labels)
    peers, own = logits.peers, _own(logits)
    scores = _scores(logits)
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


def one_vs_all(logits: Logits, labels: Tensor) -> Tensor:
    """The mean of a logistic loss for each class: Dean et al. 2012, section 5, the image model.

    `labels`: as of `cross_entropy`; of none of the classes is -100. The mean is over samples and
    classes.
    """
    if isinstance(logits, Output):
        return logits.model.losses(OfClasses(one_vs_all=True), logits.x, labels)[0]
    if isinstance(logits, Tensor):
        labels = _checked(logits.shape, labels)
        return _logistic(logits, labels, 0) / logits.numel()
    labels = _checked(_shape(len(logits.tensor), logits), labels)
    scores = _scores(logits)
    total = _logistic(scores, labels, _own(logits).first)
    return summed_for_all(total, logits.peers) / (len(scores) * logits.height * logits.channels)


@dataclass(frozen=True, kw_only=True)
class OfClasses(Objective):
    """`cross_entropy`, or `one_vs_all`."""

    one_vs_all: bool = False

    def check(self, part: Partitioned, samples: int, labels: Tensor | None) -> None:
        _checked(_shape(samples, part.output), labels)

    def losses(self, part: Partitioned, x: Value, labels: Tensor | None) -> Tensor:
        assert labels is not None  # noqa: S101  As `check` found.
        loss = one_vs_all if self.one_vs_all else cross_entropy
        return loss(part.through(x), labels)[None]


def _logistic(scores: Tensor, labels: Tensor, first: int) -> Tensor:
    """The sum over (samples, classes from `first` on)."""
    classes = torch.arange(first, first + scores.shape[1], device=scores.device)
    targets = (labels[:, None] == classes).to(scores)
    return functional.binary_cross_entropy_with_logits(scores, targets, reduction="sum")


def _scores(logits: DistributedArray) -> Tensor:
    """Of this partition's classes. Sums over many of them are not for 16 bits."""
    scores = logits.tensor.flatten(1)
    return scores if scores.element_size() > 2 else scores.float()


def _shape(samples: int, logits: Shape | DistributedArray) -> tuple[int, ...]:
    """Of all of them: (samples, classes), as far as they are classes."""
    sizes = logits.channels, logits.height, logits.width
    if logits.width == 1 and 1 in {logits.channels, logits.height}:
        return samples, logits.channels * logits.height
    return samples, *sizes


def _own(logits: DistributedArray) -> Span:
    """The classes of this partition: in rows, or all of them in channels of one place."""
    if logits.channels == 1:
        return logits.window.rows
    return Span(0, logits.channels if logits.window.area else 0)


def _checked(logits: tuple[int, ...], labels: Tensor | None) -> Tensor:
    """The labels as torch wants them. `logits`: the shape of all of them."""
    if len(logits) != 2:
        message = (
            f"logits: must be (samples, classes), got {tuple(logits)}; end the model with a "
            "Linear, or take the loss of its whole output"
        )
        raise ValueError(message)
    samples, classes = logits
    if labels is None or labels.shape != (samples,) or labels.is_floating_point():
        found = "none" if labels is None else f"{tuple(labels.shape)} of {labels.dtype}"
        message = f"labels: must be ({samples},), a whole number for each sample, got {found}"
        raise ValueError(message)
    wrong = labels[(labels != IGNORED) & ((labels < 0) | (labels >= classes))]
    if wrong.numel():
        message = f"labels: must be below {classes}, got {wrong[0].item()}"
        raise ValueError(message)
    return labels.long()
