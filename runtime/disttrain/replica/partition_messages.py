"""What the first process of a divided replica and each of its partitions send to each other.

Both sides know which tensors come, of which shapes: each has planned the same division. A message
is their bytes, one after the other.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from disttrain.parallel.layers.partitioned import Index
from disttrain.parallel.partitioning import Partitioned
from disttrain.task.errors import LossError
from disttrain.task.loss import BatchLoss, numbers

_SAME_LOSS = 1e-3
"""Machines may differ in the last digits."""
_HEAD_BYTES = 16
"""Loss and digest of the batch, of 64 bits each."""


class Found(NamedTuple):
    """What one partition has found in a step."""

    loss: BatchLoss
    gradients: Mapping[str, Tensor | None]
    """Of the loss's sum, if it has one, else of its mean; None: it does not depend on it."""
    digest: int
    """Of the batch."""


class Piece(NamedTuple):
    """A part of the gradient of one parameter."""

    name: str
    place: Index | None
    """Where it lies in the whole one; None: it is all of it."""
    gradient: Tensor


class Tensors:
    """The parameters and buffers of one partition, and what is sent of them."""

    def __init__(self, part: Partitioned, rank: int) -> None:
        self._rank = rank
        self._pieces = part.pieces
        self._parameters = {name: _like(each) for name, each in part.named_parameters()}
        trained = [name for name, each in part.named_parameters() if each.requires_grad]
        self._trained = trained
        self._buffers = [name for name, _ in part.named_buffers()]
        # Of one that all partitions have, each has the whole gradient: the first one's is taken.
        self._given = [name for name in trained if not rank or self._pieces[name] is not None]

    def values(self, *, first: bool) -> Iterator[tuple[str, Index | None]]:
        """What a partition gets before a step: names, and where its part lies in the whole one.

        `first`: before the first step, frozen parameters as well.
        """
        for name in self._parameters if first else self._trained:
            yield name, self._pieces.get(name)
        for name in self._buffers:
            yield name, None

    def pieces(self, found: Found) -> Iterator[Piece]:
        """What this partition has found, of that which it gives."""
        for name in self._given:
            gradient = found.gradients[name]
            if gradient is not None:
                yield Piece(name, self._pieces.get(name), gradient)

    def message(self, found: Found) -> Tensor:
        """What was found, for the first process."""
        (mean,) = numbers(found.loss.mean)
        gradients = {name: found.gradients[name] for name in self._given}
        has = torch.tensor([each is not None for each in gradients.values()], dtype=torch.uint8)
        head = (torch.tensor([mean], dtype=torch.float64), torch.tensor([found.digest]), has)
        filled = [
            torch.zeros_like(self._parameters[name], device="cpu") if each is None else each
            for name, each in gradients.items()
        ]
        return packed([*head, *filled])

    @property
    def room(self) -> Tensor:
        """For such a message."""
        nbytes = sum(self._parameters[name].nbytes for name in self._given)
        return torch.empty(_HEAD_BYTES + len(self._given) + nbytes, dtype=torch.uint8)

    def read(self, message: Tensor, own: Found) -> Iterator[Piece]:
        """What this partition sent. Raises LossError if it cannot be of the batch of `own`."""
        mean, digest = torch.empty(1, dtype=torch.float64), torch.empty(1, dtype=torch.int64)
        unpack(message, [mean, digest])
        check_same(own, float(mean), int(digest), self._rank)
        end = _HEAD_BYTES + len(self._given)
        parts = [torch.empty_like(self._parameters[name], device="cpu") for name in self._given]
        unpack(message[end:], parts)
        has = message[_HEAD_BYTES:end].tolist()
        for name, is_there, part in zip(self._given, has, parts, strict=True):
            if is_there:
                yield Piece(name, self._pieces[name], part)


def packed(tensors: Sequence[Tensor]) -> Tensor:
    """Their bytes, one after the other, in host memory."""
    parts = [each.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for each in tensors]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


@torch.no_grad()
def unpack(message: Tensor, into: Sequence[Tensor]) -> None:
    """Fill tensors with what `packed` made of such."""
    at = 0
    for each in into:
        # A copy, since a view needs bytes that begin at a multiple of the element's size.
        part = message[at : at + each.nbytes].clone().view(each.dtype)
        each.copy_(part.view(each.shape))
        at += each.nbytes


def check_same(own: Found, mean: float, digest: int, rank: int) -> None:
    """Raises LossError where a partition had another batch, or has found another loss."""
    if digest != own.digest:
        message = (
            f"partition {rank} of this replica has read another batch than partition 0: let "
            "Task.dataset() and Task.collate() draw only from Python's, NumPy's and torch's own "
            "generators, which DistTrain seeds, and depend on nothing of the process"
        )
        raise LossError(message)
    (here,) = numbers(own.loss.mean)
    is_known = math.isfinite(here) or math.isfinite(mean)
    if is_known and not math.isclose(here, mean, rel_tol=_SAME_LOSS, abs_tol=_SAME_LOSS):
        message = (
            f"Task.loss() gave {here} in partition 0 of this replica and {mean} in partition "
            f"{rank}: let it use what the model returns and no parameters of it, of which each "
            "partition has a part; take weight decay from the optimizer"
        )
        raise LossError(message)


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="meta")
