"""The ranks of a replica: each computes its part of a batch, and all take the same step.

It is what torch's DistributedDataParallel does, with one operation for the whole gradient, which is
one vector here. DistributedDataParallel waits inside backward, where nothing can end it, and puts a
module around the model, whose other methods a task may call.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from disttrain.coordinator.protocol.fields import Lease
from disttrain.groups.steps import Collective, Leader
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.gradient_check import PresentGradients
from disttrain.replica.parts import Part
from disttrain.replica.work import WorkItem
from disttrain.state.vector import FROZEN
from disttrain.task.loss import BatchLoss, numbers


class Renewal(IntEnum):
    """What becomes of a rank's values before a step. The larger one renews more."""

    KEEP = 0
    """They stay."""
    RENEW = 1
    """Parameters and buffers become the leader's."""
    BEGIN = 2
    """All values become the leader's, frozen ones as well."""


class Order(NamedTuple):
    """What the leader tells of a step, in the words that all ranks sum."""

    lease: int
    epoch: int
    portion: int
    first: int
    """Place of the batch's first sample in the portion."""
    end: int
    """Of the lease in the portion."""
    samples: int
    """In the parameters, which the rate goes by."""
    values: int = Renewal.KEEP
    forgets: int = 0
    """1: the optimizer begins anew."""

    @classmethod
    def next(cls, item: WorkItem, samples: int) -> "Order":
        """To compute this batch. `samples`: in the parameters."""
        begin = item.first + len(item.indices) - item.end_offset
        return cls(
            lease=item.lease,
            epoch=item.epoch,
            portion=item.portion,
            first=item.first,
            end=begin + item.lease_samples,
            samples=samples,
        )

    @classmethod
    def of(cls, words: Sequence[int]) -> "Order":
        """Of the words that all ranks have summed, which may be more."""
        return cls(*words[: len(cls._fields)])

    def rest(self) -> Lease:
        """What is left of the lease from this batch on."""
        return Lease(
            id=self.lease,
            epoch=self.epoch,
            portion=self.portion,
            first=self.first,
            end=self.end,
        )


class Ranks:
    """One rank's way to the others. Belongs to the compute thread."""

    def __init__(self, group: Collective, part: Part, leader: Leader | None = None) -> None:
        """`leader`: of the first rank."""
        self.part = part
        self.leader = leader
        self._group = group

    def average(
        self,
        gradient: Tensor,
        loss: BatchLoss | None,
        samples: int,
        present: PresentGradients,
    ) -> tuple[float, float]:
        """Make the gradient of a part that of the whole batch, the same bits in all ranks.

        `samples`: of the whole batch. Gradients are weighted by their samples, or by what their
        losses are sums of. A parameter has a gradient if it has one in any rank. Returns the mean
        loss, and how much counts in it. Raises as `Collective.sum`.
        """
        mean, counted = own_figures(loss, self.part, samples)
        sums = torch.tensor([mean * counted, counted, *present.present], dtype=torch.float64)
        gradient.mul_(counted / samples)
        self._group.all_reduce(sums)
        self._group.all_reduce(gradient)
        total, count, *ranks_with = sums.tolist()
        present.present = [have > 0 for have in ranks_with]
        if count not in {0, samples}:
            gradient.mul_(samples / count)
        return (total / count if count else total), count

    def share(self, model: FlatModel, values: int) -> None:
        """Make a rank's values the leader's, bit for bit. Raises as `Collective.sum`."""
        for tensor in _values(model, values):
            self._group.broadcast(tensor)


def own_figures(loss: BatchLoss | None, part: Part, samples: int) -> tuple[float, float]:
    """A part's mean loss, and how much counts in it. `samples`: of the whole batch."""
    counted = part.counted(samples)
    if loss is None or not counted:
        return 0.0, 0.0
    if loss.count is not None:
        mean, count = numbers(loss.mean, loss.count)
        return mean, count
    (mean,) = numbers(loss.mean)
    return mean, float(counted)


def of_whole(loss: BatchLoss, mean: Tensor, count: float) -> BatchLoss:
    """The same of all parts together, with their mean and what counts in it."""
    counted = None if loss.count is None else torch.tensor(count, dtype=torch.float64)
    return replace(loss, mean=mean, count=counted)


def _values(model: FlatModel, values: int) -> Iterator[Tensor]:
    if values == Renewal.KEEP:
        return
    yield model.parameters
    yield from model.model.buffers()
    if values == Renewal.BEGIN:
        for vector in model.tensors.vectors:
            yield from model.tensors.tensors(vector) if vector.name == FROZEN else ()


class SharedBatches(ABC):
    """How a process of a replica computes its part of each batch, and what is made of all parts.

    Belongs to the compute thread. All raise as `Collective.sum`.
    """

    @abstractmethod
    def announce(self, item: WorkItem, samples: int) -> None:
        """Let all compute this batch; of the first process. `samples`: in the parameters."""

    @abstractmethod
    def average(
        self, gradient: Tensor, loss: BatchLoss | None, samples: int, present: PresentGradients
    ) -> BatchLoss | None:
        """Make the gradient that of the whole batch, of as many samples; the whole one's loss.

        What is reported is of the first process's part.
        """

    def renew(self) -> None:  # noqa: B027 - Where each process has its own, there is nothing to do.
        """The next step begins with other values than the last one ended with."""

    def forget(self) -> None:  # noqa: B027 - As above.
        """The optimizer begins anew."""


class LeadingRank(SharedBatches):
    """The first rank, which has the replica's leases and speaks with the shards."""

    def __init__(self, ranks: Ranks, model: FlatModel) -> None:
        self._ranks = ranks
        self._model = model
        self._values: int = Renewal.BEGIN
        self._forgets = False

    def announce(self, item: WorkItem, samples: int) -> None:
        order = Order.next(item, samples)._replace(values=self._values, forgets=int(self._forgets))
        assert self._ranks.leader is not None  # noqa: S101  This is the first rank.
        self._ranks.leader.before_step(*order)
        self._ranks.share(self._model, self._values)
        self._values, self._forgets = Renewal.KEEP, False

    def average(
        self, gradient: Tensor, loss: BatchLoss | None, samples: int, present: PresentGradients
    ) -> BatchLoss:
        assert loss is not None  # noqa: S101  Its part of a batch is never empty.
        mean, count = self._ranks.average(gradient, loss, samples, present)
        return of_whole(loss, torch.tensor(mean, dtype=torch.float64), count)

    def renew(self) -> None:
        self._values = max(self._values, Renewal.RENEW)

    def forget(self) -> None:
        self._forgets = True
